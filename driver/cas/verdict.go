package cas

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// A store that lets two writes win does so now and then: one race finds it with a tenth or less of a chance. So the races of all
// programs count together. The value at ProbeKey has their number, and what one of them has found: every program that
// opens the store reads it there, and so does every Locker that goes on racing while the store is young.

const (
	// youngRounds is how many rounds a store must pass before it is trusted. A store that lets two win in a tenth of the rounds
	// passes with a probability of 10⁻⁹.
	youngRounds = 200
	// youngFactor is how many times more rounds Open makes on a young store.
	youngFactor = 3
	// youngPause is the time between two rounds of a Locker that goes on racing.
	youngPause = 2 * time.Second
	// convictRounds is within how many rounds a second one has to show that a store lets two win, if one is not enough.
	convictRounds = 30
)

// trials is the value at ProbeKey.
type trials struct {
	About  string `json:"about"`
	Unique string `json:"unique"`
	// Rounds is how many rounds of races the store has passed, of all programs.
	Rounds  int      `json:"rounds"`
	Verdict *verdict `json:"verdict,omitempty"`
}

// verdict says that the store was seen to break its promise.
type verdict struct {
	Saw string    `json:"saw"`
	At  time.Time `json:"at"`
	By  string    `json:"byVersion"`
}

// readTrials reads the value at ProbeKey. One that cannot be read counts as that of a young store.
func readTrials(data []byte) (t trials) {
	if json.Unmarshal(data, &t) != nil {
		return trials{}
	}
	t.Rounds = max(0, t.Rounds)
	return t
}

// encode returns a value to store, which differs from all others.
func (t trials) encode() []byte {
	t.About, t.Unique = "Programs that lock with this store try its conditional writes here.", rand.Text()
	data, _ := json.Marshal(t) //nolint:errchkjson // texts, numbers and a valid time
	return data
}

// clearing says what a person does about a verdict.
func (c Config) clearing() string {
	return "when the store was repaired, or if this was wrong, delete " + c.ProbeValue + ", and start the programs again"
}

// refusal is the error of what must not be done on such a store. It stays until a person clears the verdict.
func (c Config) refusal(v *verdict) error {
	return driver.Denied(errUnsafe("%s; found on %s by Holdfast %s: %s", v.Saw, v.At.UTC().Format(time.RFC3339), v.By, c.clearing()))
}

// libraryVersion is the version of Holdfast in this program.
func libraryVersion() string {
	const module = "github.com/holdfast-go/holdfast"
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "(unknown)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "" {
			return m.Version
		}
	}
	return "(unknown)"
}

// stopped is the error of a call that needs the store to keep its promise, or nil.
func (l *Locker) stopped() error {
	if v := l.unsafe.Load(); v != nil {
		return l.config.refusal(v)
	}
	return nil
}

// convict condemns the store after a race that more than one write has won, if that proves something. Otherwise it returns the error
// of this race.
//
// On an exact store, two writes that demand that there is no value are done if somebody deletes the first one's, and two writes on
// one version if a fail-over forgets the first one. Then it takes a second such race soon after.
func (l *Locker) convict(ctx context.Context, wins int, version string) error {
	saw := fmt.Sprintf("%d of %d writes with the same condition were done", wins, racers)
	proven := version != "" && l.config.Info.Failover == driver.GrantsSurvive
	for try := 0; try < convictRounds && !proven; try++ {
		v, err := l.get(ctx, ProbeKey)
		t := readTrials(v.Data)
		switch {
		case err != nil:
			return errUnsafe("%s", saw)
		case t.Verdict != nil:
			return l.obey(t.Verdict)
		}
		_, wins, _ = l.race(ctx, v.Version, t)
		proven = wins > 1 && v.Version != ""
	}
	if !proven {
		return errUnsafe("%s", saw)
	}
	return l.condemn(ctx, saw)
}

// obey stops the Locker for a verdict that was read, and returns its error.
func (l *Locker) obey(v *verdict) error {
	l.unsafe.CompareAndSwap(nil, v)
	return l.config.refusal(v)
}

// condemn stops the Locker, and stores the verdict for all programs.
//
// Such a store may replace the verdict by a write that was on its way. So it is written until it stays.
func (l *Locker) condemn(ctx context.Context, saw string) error {
	v := &verdict{Saw: saw, At: l.now(), By: libraryVersion()}
	err := l.obey(v)
	for try, stays := 1, 0; try <= maxWrites && stays < 3; try++ {
		switch now, getErr := l.get(ctx, ProbeKey); {
		case getErr != nil:
		case readTrials(now.Data).Verdict != nil:
			stays++
		default:
			stays = 0
			t := readTrials(now.Data)
			t.Verdict = v
			_, _ = l.put(ctx, ProbeKey, t.encode(), now.Version) // the next read shows it
		}
		if l.pause(ctx, 6) != nil {
			break
		}
	}
	return err
}

// goOnRacing races conditional writes until the store is no longer young, or is condemned.
func (l *Locker) goOnRacing(ctx context.Context) {
	for range youngRounds {
		select {
		case <-time.After(youngPause/2 + mathrand.N(youngPause)):
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, 3*l.config.CallLimit)
		rounds, err := l.round(limited)
		cancel()
		if l.unsafe.Load() != nil || err == nil && rounds >= youngRounds {
			return
		}
	}
}

// lost is the error for a lease that the record does not have. If its present holder has the same token, two writes on one version
// were done, since every grant raises the token: both were decided on the value before, within the limit of a call. In a value that
// was deleted and made anew, or restored from a backup, a token may come again.
func (l *Locker) lost(s *state, lease driver.Lease) error {
	own, has := l.written(lease)
	same := has && s.Token == own.Token && lineage(s.Unique) == lineage(own.Unique) &&
		s.AcquiredAt.Sub(own.AcquiredAt).Abs() <= 3*l.config.CallLimit
	if !same || s.Holder == "" || s.Holder == own.Holder || isOther(s.Holder) || l.config.Info.Failover != driver.GrantsSurvive {
		return driver.ErrLost
	}
	saw := fmt.Sprintf("two holders of %s have got the token %d", driver.Quote(lease.Name), lease.Token)
	_ = l.obey(&verdict{Saw: saw, At: l.now(), By: libraryVersion()})
	l.calls.Go(func() {
		ctx, cancel := context.WithTimeout(l.calls.Context(), 3*l.config.CallLimit)
		defer cancel()
		_ = l.condemn(ctx, saw)
	})
	return l.lostByVerdict()
}

// written is the record that the last request of an exclusive lease has written.
func (l *Locker) written(lease driver.Lease) (rec record, ok bool) {
	_, data, ok := parseState(lease.State.Content())
	if !ok {
		return rec, false
	}
	rec, err := decode(lockrecord.Key(lease.Name), lease.Name, data, l.config.Info.Expiry)
	return rec, err == nil && rec.Holder == lockrecord.Digest(lease.ID)
}

// lostByVerdict ends a lease because the store is not safe, or is nil.
func (l *Locker) lostByVerdict() error {
	if err := l.stopped(); err != nil {
		return driver.Errorf("%w: %s", driver.ErrLost, driver.ErrorText(err))
	}
	return nil
}
