package integration

import (
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The wall clocks of a holder's and of a waiter's process are set an hour ahead and an hour
// back, for longer than a TTL each time, and then the holder is killed — the holder keeps
// its lock, the waiter gets it when the TTL is over and not before, tokens rise.
func TestClientWallClockMoved(t *testing.T) {
	t.Parallel()
	for _, b := range []func(testing.TB) target{mongoTarget, azureTarget, fileTarget} {
		b := b(t)
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			name, witness := fresh(), b.actor(t, nil)
			holder, holderClock := newTimeTraveller(t, job{Role: "obey", URL: b.url, Name: name, TTL: b.ttl})
			waiter, waiterClock := newTimeTraveller(t, job{Role: "obey", URL: b.url, Name: name, TTL: b.ttl})
			first := parse(t, holder.ask("lock", "token"))
			waiter.order("lock")
			for _, off := range []time.Duration{time.Hour, -time.Hour} {
				holderClock.set(t, off)
				waiterClock.set(t, -off)
				wantOff(t, holder, off)
				time.Sleep(b.ttl + b.ttl/4)
				if err := holder.ask("err", "err"); err != "<nil>" {
					t.Errorf("the holder, %v off: %s", off, err)
				}
				if waiter.tells(holdfast.EventAcquired) {
					t.Errorf("the waiter, %v off, was granted a lock that is held", -off)
				}
			}
			wantOff(t, holder, -time.Hour)
			left := time.Duration(parse(t, holder.ask("left", "left"))) // until its deadline
			asked := time.Now()
			if err := holder.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			second := parse(t, waiter.expect("token"))
			if took := time.Since(asked); took < left {
				t.Errorf("taken over after %v, %v before the holder's own deadline", took, left-took)
			}
			if second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			wantOff(t, waiter, time.Hour)
			if err := waiter.ask("release", "released"); err != "<nil>" {
				t.Errorf("release: %s", err)
			}
			release(t, witness.lock(name))
		})
	}
}

// newTimeTraveller starts a process whose wall clock can be set.
func newTimeTraveller(t *testing.T, j job) (*worker, *wallClock) {
	t.Helper()
	var clock *wallClock
	w := prepare(t, j)
	w.start(func(cmd *exec.Cmd) (err error) {
		clock, err = startWithWallClock(cmd)
		return err
	})
	return w, clock
}

// wantOff fails unless the process itself sees that its clock is off.
func wantOff(t *testing.T, w *worker, off time.Duration) {
	t.Helper()
	sees := time.Unix(0, parse(t, w.ask("time", "time")))
	if d := time.Until(sees) - off; d.Abs() > time.Minute {
		t.Fatalf("the process's clock is off by %v, want %v", d+off, off)
	}
}
