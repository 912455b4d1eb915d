package leases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Unmanage names what could not be released, and nothing else; also to each of several
// callers.
func TestManagerUnmanageNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRelease && strings.HasPrefix(l.Name, "bad") {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		}))
		m := locktest.NewManager(t, c)
		locktest.MustAdd(t, m, "bad", "good")
		synctest.Wait()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- m.Remove(t.Context(), "bad", "good", "bad", "never managed") }()
		}
		for range 2 {
			err := <-done
			if !errors.Is(err, locktest.ErrInjected) || !strings.Contains(err.Error(), `"bad"`) || strings.Contains(err.Error(), "good") {
				t.Errorf("Unmanage: %v", err)
			}
		}
		if err := m.Remove(t.Context(), "bad"); err != nil {
			t.Errorf("Unmanage of what is not managed any more: %v", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("Close, with nothing left to release: %v", err)
		}
	})
}

// However fast the releases are: what Shutdown ends says so.
func TestManagerShutdownIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		m := locktest.NewManager(t, c)
		names := locktest.Names("n", 20)
		locktest.MustAdd(t, m, names...)
		synctest.Wait()
		var holds []*holdfast.Hold
		for _, name := range names {
			h, ok := m.Hold(name)
			if !ok {
				t.Fatalf("%q is not held", name)
			}
			holds = append(holds, h)
			for range 1000 { // so that to end it takes a while
				_, cancel := context.WithCancel(h.Context())
				defer cancel()
			}
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for _, h := range holds {
			if cause := context.Cause(h.Context()); !errors.Is(cause, holdfast.ErrClosed) {
				t.Errorf("%s ended by %v", h.Name(), cause)
			}
		}
	})
}

// Looks that failed for a while do not make a manager deaf to the Watcher afterwards.
func TestManagerHearsTheWatcherAfterFailedLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		var f *locktest.Faulty
		f = locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpInspect && n > 1 && f.Count(locktest.OpAcquire) < 2 {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		f.Watcher = true
		m := locktest.NewManager(t, locktest.NewClient(t, f))
		locktest.MustAdd(t, m, "job")
		for f.Count(locktest.OpAcquire) < 2 { // the holder has renewed; that was not seen
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		looks := f.Count(locktest.OpInspect)
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if _, ok := m.Hold("job"); !ok {
			t.Errorf("not acquired when the Watcher told of the release; %d looks before", looks)
		}
	})
}
