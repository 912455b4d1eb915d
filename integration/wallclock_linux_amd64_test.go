package integration

import (
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The wall clocks of a holder's and a waiter's process are set an hour ahead and an hour back,
// each for longer than a TTL, and then the holder is killed — the holder keeps its lock, the
// waiter gets it when the TTL has ended and not before, and tokens rise.
func TestClientWallClockMoved(t *testing.T) {
	t.Parallel()
	for _, b := range []func(testing.TB) backend{mongoBackend, postgresBackend, azureBackend, fileBackend} {
		b := b(t)
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			name, witness := uniqueName(), b.client(t, nil)
			holder, holderClock := startWithMovableClock(t, job{Role: "commands", URL: b.url, Name: name, TTL: b.ttl})
			waiter, waiterClock := startWithMovableClock(t, job{Role: "commands", URL: b.url, Name: name, TTL: b.ttl})
			first := parse(t, holder.query("lock", "token"))
			waiter.send("lock")
			for _, off := range []time.Duration{time.Hour, -time.Hour} {
				holderClock.set(t, off)
				waiterClock.set(t, -off)
				expectClockOffset(t, holder, off)
				time.Sleep(b.ttl + b.ttl/4)
				if err := holder.query("err", "err"); err != "<nil>" {
					t.Errorf("the holder with its clock off by %v: %s", off, err)
				}
				if waiter.reported(holdfast.EventAcquired) {
					t.Errorf("the waiter with its clock off by %v was granted a held lock", -off)
				}
			}
			expectClockOffset(t, holder, -time.Hour)
			left := time.Duration(parse(t, holder.query("left", "left"))) // until the local deadline
			killed := time.Now()
			if err := holder.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			second := parse(t, waiter.expect("token"))
			if took := time.Since(killed); took < left {
				t.Errorf("taken over after %v, %v before the holder's own deadline", took, left-took)
			}
			if second <= first {
				t.Errorf("token %d was granted after token %d", second, first)
			}
			expectClockOffset(t, waiter, time.Hour)
			if err := waiter.query("release", "released"); err != "<nil>" {
				t.Errorf("release: %s", err)
			}
			release(t, witness.lock(name))
		})
	}
}

// startWithMovableClock starts a process whose wall clock the test can set.
func startWithMovableClock(t *testing.T, j job) (*workerProcess, *wallClock) {
	t.Helper()
	var clock *wallClock
	w := newWorker(t, j)
	w.start(func(cmd *exec.Cmd) (err error) {
		clock, err = startWithWallClock(cmd)
		return err
	})
	return w, clock
}

// expectClockOffset fails unless the process itself sees that its clock is off.
func expectClockOffset(t *testing.T, w *workerProcess, off time.Duration) {
	t.Helper()
	sees := time.Unix(0, parse(t, w.query("time", "time")))
	if d := time.Until(sees) - off; d.Abs() > time.Minute {
		t.Fatalf("the process's clock is off by %v, want %v", d+off, off)
	}
}
