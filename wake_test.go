package holdfast_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// slowWatcher takes a while until a watch is in effect.
type slowWatcher struct {
	*faulty
	delay time.Duration
}

func (s slowWatcher) Capabilities() driver.Capabilities {
	a := s.faulty.Capabilities()
	a.Watcher = s
	return a
}

func (s slowWatcher) Watch(name string, wake func()) (stop func()) {
	var inner atomic.Value
	timer := time.AfterFunc(s.delay, func() { inner.Store(s.Locker.Capabilities().Watcher.Watch(name, wake)) })
	return func() {
		timer.Stop()
		if stop, in := inner.Load().(func()); in {
			stop()
		}
	}
}

// A release between the refusal and the moment when the watch is in effect is noticed then,
// with a lookout and without.
func TestReleaseBeforeTheWatchIsInEffect(t *testing.T) {
	for _, noLooks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := mustLock(t, newClient(t, store.Locker()), "job")
			time.AfterFunc(time.Second, func() { _ = h.Release(t.Context()) })
			f := newFaulty(t, store.Locker(), nil)
			f.noLooks = noLooks
			c := newClient(t, slowWatcher{f, 2 * time.Second}, holdfast.WithPollInterval(time.Hour))
			start := time.Now()
			mustLock(t, c, "job")
			if d := time.Since(start); d != 2*time.Second {
				t.Errorf("no looks %v: granted after %v", noLooks, d)
			}
		})
	}
}

// A hold that has said once that it is lost stays lost, although a renewal that was sent in
// time is answered: the process was suspended meanwhile.
func TestLostStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		start := time.Now()
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRenew {
				return fault{delay: 1200 * time.Millisecond}
			}
			return fault{}
		})
		c := newClient(t, f, holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(asleep.Load()) }))
		h := mustLock(t, c, "job")
		time.Sleep(11100 * time.Millisecond) // the renewal is under way since 10 s
		asleep.Store(int64(14 * time.Second))
		for range 100 {
			if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}
