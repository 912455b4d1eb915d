package cas

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// ProbeKey is the key at which conditional writes are tried. It is no lock's. missingKey never has a value.
const (
	ProbeKey   = "~probe"
	missingKey = "~probe-missing"
)

// racers is how many writes with the same condition are sent at a time.
const racers = 8

// errUnsafe is the error for a store on which two clients could hold one lock.
func errUnsafe(format string, args ...any) error {
	return driver.Errorf("the store does not keep the condition of writes, so two clients could hold one lock: %w",
		fmt.Errorf(format, args...))
}

// probe tries conditional writes. Other processes may do so at the same time, so each test is one that they
// cannot disturb.
func (l *Locker) probe(ctx context.Context) error {
	for range l.config.ProbeRounds {
		before, err := l.get(ctx, ProbeKey)
		if err != nil {
			return err
		}
		if l.config.Info.Expiry == driver.ByServer && before.Now.IsZero() {
			return errNoClock
		}
		if err := l.race(ctx, before.Version); err != nil {
			return err
		}
		now, err := l.get(ctx, ProbeKey)
		if err != nil {
			return err
		}
		if now.Version == "" {
			continue // nothing was written
		}
		for try := 1; ; try++ { // a store may fail now and then
			_, err := l.put(ctx, ProbeKey, probeText(), "")
			switch {
			case err == nil:
				return errUnsafe("a write that demands that there is no value was done, although there was one")
			case driver.Lasting(err):
				return err
			case !errors.Is(err, ErrConflict) && try < 3:
				continue
			case !errors.Is(err, ErrConflict):
				return fmt.Errorf("a write whose condition does not hold must return ErrConflict: %w", err)
			}
			break
		}
		_, _ = l.put(ctx, missingKey, probeText(), now.Version) // must not be done
		if v, err := l.get(ctx, missingKey); err != nil {
			return err
		} else if v.Version != "" {
			return errUnsafe("a write that demands a version was done, although there was no value")
		}
	}
	return nil
}

// race sends several writes with one condition. One of them may win, or that of another process.
func (l *Locker) race(ctx context.Context, version string) error {
	var texts [racers][]byte
	var done [racers]Written
	var errs [racers]error
	var wg sync.WaitGroup
	for i := range racers {
		texts[i] = probeText()
		wg.Go(func() { done[i], errs[i] = l.put(ctx, ProbeKey, texts[i], version) })
	}
	wg.Wait()
	now, err := l.get(ctx, ProbeKey)
	if err != nil {
		return err
	}
	wins, conflicts := 0, 0
	for i, err := range errs {
		read := string(now.Data) == string(texts[i])
		switch {
		case err == nil:
			if wins++; done[i].Version == version || read && done[i].Version != now.Version {
				return errUnsafe("a write returned the version %s, but the value has the version %s", quoteVersion(done[i].Version),
					quoteVersion(now.Version))
			}
		case errors.Is(err, ErrConflict) && read:
			return errUnsafe("a write was refused, but done")
		case errors.Is(err, ErrConflict):
			conflicts++
		}
	}
	switch {
	case wins > 1:
		return errUnsafe("%d of %d writes with the same condition were done", wins, racers)
	case now.Version != version:
	case wins == 1:
		return errUnsafe("a read after a write returned the value from before")
	case conflicts == racers:
		return errUnsafe("all writes were refused, although the value has the version that they demand")
	case conflicts == 0:
		return errs[0] // no right to write, or no answer
	}
	return nil
}

func probeText() []byte {
	return []byte("Programs that lock with this store have tried its conditional writes here: " + rand.Text())
}

func quoteVersion(v string) string { return driver.Quote(v) }

// What Check examines.
const (
	subjectStore  = "store"
	subjectWrites = "conditional writes"
)

// Check implements [driver.Checker]. It reads one value. A driver with checks of its own calls it first: it says whether the
// store can be trusted.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	store := driver.Finding{Subject: subjectStore, Detail: "it answers"}
	err := l.call(ctx, "check", "", nil, func(ctx context.Context) error {
		if _, err := l.get(ctx, ProbeKey); err != nil {
			store = driver.Finding{Subject: subjectStore, Level: driver.LevelWrong, Detail: "a value cannot be read: " + err.Error(),
				Remedy: "make sure that the store is reachable and that this program may read it"}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if report(store); store.Level == driver.LevelWrong {
		return nil
	}
	probed := driver.Finding{Subject: subjectWrites, Detail: "of writes that raced when the store was opened, one was done at a time"}
	if !l.probed.Load() {
		probed.Level, probed.Detail = driver.LevelUnchecked, "they were not tried, because that writes a value"
	}
	report(probed)
	return nil
}

// RemoveProbe implements [driver.Checker]. It keeps the token: the value is marked as removed.
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.call(ctx, "remove", name, driver.ValidateName(name, l.config.Info.Limits), func(ctx context.Context) error {
		return l.change(ctx, name, nil, func(s *state) (bool, error) {
			if s.version == "" || s.Token == 0 || s.Removed || s.Held(s.now) || len(s.Data) > 0 {
				return false, nil
			}
			s.remove()
			return true, nil
		})
	})
}
