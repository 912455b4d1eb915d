package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// serverWithClock is a database of a server whose clock the returned function moves.
func serverWithClock(t *testing.T) (at string, set func(ahead time.Duration)) {
	t.Helper()
	clock, err := serverprocess.NewClock(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at = postgrestest.Start(t, postgrestest.Options{Clock: clock}).Database(t)
	return at, func(ahead time.Duration) {
		t.Helper()
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
	}
}

// The server's clock steps an hour ahead, which ends leases early, and back, which leaves a dead holder's lease until in an
// hour. Tokens rise across both, and a Client replaces the dead holder after its TTL.
func TestServerClockSteps(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	at, set := serverWithClock(t)
	l, ctx := open(t, at), bounded(t)
	first := acquire(t, l, request("job", "first"))
	wantHeld(t, l, request("job", "second"))
	set(time.Hour)
	second := acquire(t, l, request("job", "second"))
	if _, err := l.Renew(ctx, first); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal after the take-over: %v", err)
	}
	dead := acquire(t, l, driver.Request{Name: "dead", ID: driver.NewLeaseID("dead"), TTL: time.Second})
	set(0)
	if r := wantHeld(t, l, request("dead", "next")); r.Remaining < 50*time.Minute {
		t.Errorf("the dead holder's lease ends in %v: the clock has not stepped back", r.Remaining)
	}
	wantFinding(t, examine(t, at), subjectClock, driver.LevelDoubtful, "stepped back")
	if _, err := l.Renew(ctx, second); err != nil {
		t.Errorf("a renewal after the step back: %v", err)
	}
	if err := l.Release(ctx, second); err != nil {
		t.Error(err)
	}
	third := acquire(t, l, request("job", "third"))
	if first.Token >= second.Token || second.Token >= third.Token {
		t.Errorf("tokens %d, %d, %d", first.Token, second.Token, third.Token)
	}
	c, err := holdfast.New(open(t, at), holdfast.WithLogger(discard), holdfast.WithPollInterval(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Lock(ctx, "dead")
	if err != nil {
		t.Fatal(err)
	}
	if h.Token() <= dead.Token {
		t.Errorf("token %d after %d", h.Token(), dead.Token)
	}
	if err := errors.Join(h.Release(ctx), c.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
}

// A step of the server's clock while it is examined is found, in both directions.
func TestCheckFindsClockSteps(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	at, set := serverWithClock(t)
	closeLocker(t, open(t, at))
	for _, ahead := range []time.Duration{time.Minute, 0} {
		l, err := driver.OpenForCheck(bounded(t), at)
		if err != nil {
			t.Fatal(err)
		}
		var found driver.Finding
		if err := l.Capabilities().Checker.Check(bounded(t), func(f driver.Finding) {
			switch f.Subject {
			case subjectServer: // it has read the clock once
				set(ahead)
			case subjectClock:
				found = f
			}
		}); err != nil {
			t.Error(err)
		}
		closeLocker(t, l)
		_, step, stepped := strings.Cut(found.Detail, "the server's clock has stepped by ")
		if back := strings.HasPrefix(step, "-"); found.Level != driver.LevelDoubtful || !stepped || back != (ahead == 0) {
			t.Errorf("with a clock %v ahead: %v %s", ahead, found.Level, found.Detail)
		}
	}
}
