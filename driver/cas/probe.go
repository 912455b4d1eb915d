package cas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// ProbeKey is the key at which conditional writes are tried, and that of no lock. missingKey never has a value. A [Store] that waits for
// replicas need not do so for keys that begin with ProbeKey.
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

// probe tries conditional writes when the store is opened, and more often while it is young. Nobody waits for more than that for
// longer than the limit of a call.
func (l *Locker) probe(ctx context.Context) error {
	began := l.elapsed()
	for done := 1; ; done++ {
		rounds, err := l.round(ctx)
		if err != nil {
			return err
		}
		l.young = rounds < youngRounds
		more := l.young && done < youngFactor*l.config.ProbeRounds && l.elapsed()-began < l.config.CallLimit
		if done >= l.config.ProbeRounds && !more {
			return nil
		}
	}
}

// round tries conditional writes once, and returns how many rounds the store has passed. Other processes may do so at the same
// time, so no test takes what they do for a fault.
func (l *Locker) round(ctx context.Context) (rounds int, err error) {
	before, err := l.get(ctx, ProbeKey)
	if err != nil {
		return 0, err
	}
	if l.config.Info.Expiry == driver.ByServer && before.Now.IsZero() {
		return 0, errNoClock
	}
	t := readTrials(before.Data)
	if t.Verdict != nil {
		return 0, l.obey(t.Verdict)
	}
	t.Rounds++
	switch wins, err := l.raceBesideOthers(ctx, before.Version, t); {
	case wins > 1:
		return 0, l.convict(ctx, wins, before.Version)
	case err != nil:
		return 0, err
	}
	now, err := l.get(ctx, ProbeKey)
	if err != nil {
		return 0, err
	}
	if now.Version == "" {
		return 0, nil // nothing was written
	}
	for try := 1; ; try++ { // a store may fail now and then, also because of too many writes of one key
		_, err := l.put(ctx, ProbeKey, t.encode(), "")
		switch {
		case err == nil || errors.Is(err, ErrNotSafe):
			return 0, errUnsafe("a write that demands that there is no value was done, although there was one")
		case driver.Lasting(err):
			return 0, err
		case !errors.Is(err, ErrConflict) && try < 3:
			if err := l.pause(ctx, 6+2*try); err != nil {
				return 0, err
			}
			continue
		case !errors.Is(err, ErrConflict):
			return 0, driver.Errorf("a write whose condition does not hold must return ErrConflict: %w", err)
		}
		break
	}
	_, _ = l.put(ctx, missingKey, t.encode(), now.Version) // must not be done
	if v, err := l.get(ctx, missingKey); err != nil {
		return 0, err
	} else if v.Version != "" {
		return 0, errUnsafe("a write that demands a version was done, although there was no value")
	}
	return readTrials(now.Data).Rounds, nil
}

// errAllRefused says that the store refused all writes, although the value has the version that they demand.
var errAllRefused = errUnsafe("all writes were refused, although the value has the version that they demand")

// raceBesideOthers is race, again and again if all writes were refused: some stores refuse whatever comes while a write of the value is
// under way, which a read shows only when it is done. It goes on for half the limit of a call, and four times at least.
func (l *Locker) raceBesideOthers(ctx context.Context, version string, value trials) (wins int, err error) {
	var sent []string
	began := l.elapsed()
	for try := 1; ; try++ {
		texts, wins, err := l.race(ctx, version, value)
		if !errors.Is(err, errAllRefused) || try >= 4 && l.elapsed()-began >= l.config.CallLimit/2 {
			return wins, err
		}
		sent = append(sent, texts[:]...)
		if err := l.pause(ctx, 4+2*try); err != nil {
			return 0, err
		}
		switch now, err := l.get(ctx, ProbeKey); {
		case err != nil:
			return 0, err
		case slices.Contains(sent, string(now.Data)):
			return 0, errUnsafe("a write was refused, but done")
		case now.Version != version:
			return 0, nil // another process has written
		}
	}
}

// race sends several writes of one value with one condition. One of them may win, or that of another process. wins is how many did.
func (l *Locker) race(ctx context.Context, version string, value trials) (texts [racers]string, wins int, err error) {
	var done [racers]Written
	var errs [racers]error
	var wg sync.WaitGroup
	for i := range racers {
		data := value.encode()
		texts[i] = string(data)
		wg.Go(func() { done[i], errs[i] = l.put(ctx, ProbeKey, data, version) })
	}
	wg.Wait()
	now, err := l.get(ctx, ProbeKey)
	if err != nil {
		return texts, 0, err
	}
	conflicts := 0
	for i, err := range errs {
		read := string(now.Data) == texts[i]
		switch {
		case err == nil || errors.Is(err, ErrNotSafe):
			if wins++; done[i].Version == version || read && done[i].Version != now.Version {
				return texts, 0, errUnsafe("a write returned the version %s, but the value has the version %s", quoteVersion(done[i].Version),
					quoteVersion(now.Version))
			}
		case errors.Is(err, ErrConflict) && read:
			return texts, 0, errUnsafe("a write was refused, but done")
		case errors.Is(err, ErrConflict):
			conflicts++
		}
	}
	switch {
	case wins > 1 || now.Version != version:
		return texts, wins, nil
	case wins == 1:
		return texts, 0, errUnsafe("a read after a write returned the value from before")
	case conflicts == racers:
		return texts, 0, errAllRefused
	case conflicts == 0:
		return texts, 0, errs[0] // no right to write, or no answer
	}
	return texts, 0, nil
}

func quoteVersion(v string) string { return driver.Quote(v) }
