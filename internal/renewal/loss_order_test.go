package renewal_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// slowHook takes long to note the first loss.
type slowHook struct {
	telemetry.Ignore
	met    atomic.Bool
	first  chan string // gets the name
	resume chan struct{}
}

func (h *slowHook) Lost(_ context.Context, op telemetry.Operation, _ time.Duration, _ error) {
	if h.met.CompareAndSwap(false, true) {
		h.first <- op.Name
		<-h.resume
	}
}

// A loss that Hold.Err has returned is reported before the lock is acquired again, also while the hook still notes the loss of
// another lease.
func TestLossIsReportedBeforeTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &slowHook{first: make(chan string), resume: make(chan struct{})}
		seen := map[string]*locktest.Events{"a": {}, "b": {}}
		hung := locktest.Fault{Delay: time.Hour, IgnoreContext: true, Refuse: locktest.ErrInjected} // so that both are lost at once
		c := locktest.FaultyClient(t, memory.New(), locktest.Each(locktest.OpRenew, hung), holdfast.WithHook(hook),
			holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type != holdfast.EventError {
					seen[e.Name].Observe(e)
				}
			}))
		holds := map[string]*holdfast.Hold{}
		for name := range seen {
			holds[name] = locktest.MustLock(t, c, name)
		}
		other := "a"
		if <-hook.first == "a" {
			other = "b"
		}
		if holds[other].Err() == nil {
			t.Error("only one was lost")
		}
		_ = holds[other].Release(t.Context())
		next := locktest.MustLock(t, c, other)
		close(hook.resume)
		synctest.Wait()
		want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventLost, holdfast.EventAcquired}
		if got := seen[other].Types(); !slices.Equal(got, want) {
			t.Errorf("reported %v, want %v", got, want)
		}
		locktest.Release(t, next)
	})
}

// The contexts of all leases that are lost at once end, also while the hook still notes the loss of one of them.
func TestHookDelaysTheEndOfNoOtherContext(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T) holdfast.Locker{
		"at the deadline": func(t *testing.T) holdfast.Locker {
			t.Helper()
			return locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}))
		},
		"by the answer to a batch": func(t *testing.T) holdfast.Locker {
			t.Helper()
			return newBatches(t, func(int, []holdfast.Lease) locktest.Fault { return locktest.Fault{Refuse: holdfast.ErrLost} })
		},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			hook := &slowHook{first: make(chan string), resume: make(chan struct{})}
			c := locktest.NewClient(t, lose(t), holdfast.WithHook(hook))
			var holds []*holdfast.Hold
			for _, name := range locktest.Names("n", 10) {
				holds = append(holds, locktest.MustLock(t, c, name))
			}
			<-hook.first
			synctest.Wait()
			for _, h := range holds {
				if h.Context().Err() == nil {
					t.Errorf("the context of %q is live after its loss", h.Name())
				}
			}
			close(hook.resume)
		})
	}
}
