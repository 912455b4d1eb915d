package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// closing is a Locker whose Close takes as long as its farewell.
type closing struct {
	holdfast.Locker
	farewell func(ctx context.Context) error
	closed   chan struct{}
}

func newClosing(farewell func(ctx context.Context) error) *closing {
	return &closing{memory.New(), farewell, make(chan struct{})}
}

func (l *closing) Close(ctx context.Context) error {
	defer close(l.closed)
	return errors.Join(l.farewell(ctx), l.Locker.Close(ctx))
}

// Shutdown gives the Locker's Close no more time than it has itself, and does not wait for
// one that takes more.
func TestShutdownBoundsTheClosingOfTheLocker(t *testing.T) {
	polite := func(ctx context.Context) error {
		select {
		case <-time.After(10 * time.Second):
			return locktest.ErrInjected
		case <-ctx.Done():
			return nil
		}
	}
	deaf := func(context.Context) error { time.Sleep(10 * time.Second); return nil }
	for name, farewell := range map[string]func(context.Context) error{"polite": polite, "deaf": deaf} {
		for _, asked := range []time.Duration{0, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				l := newClosing(farewell)
				c := locktest.NewClient(t, l)
				ctx, cancel := context.WithTimeout(t.Context(), asked)
				defer cancel()
				start := time.Now()
				err := c.Shutdown(ctx)
				if took := time.Since(start); took > asked+100*time.Millisecond {
					t.Errorf("%s, asked %v: took %v", name, asked, took)
				}
				left := errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "closing the backend has not returned")
				if left != (name == "deaf") {
					t.Errorf("%s, asked %v: %v", name, asked, err)
				}
				<-l.closed // also with a context that had ended before
			})
		}
	}
}

// A Locker that was closed ends clean-ups and releases at once: nothing can be sent any more.
func TestClosedLockerEndsCleanUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		var closed atomic.Bool
		f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			switch {
			case closed.Load():
				return locktest.Fault{Refuse: holdfast.ErrClosed}
			case op == locktest.OpAcquire:
				return locktest.Fault{Lose: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, locktest.ErrInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(time.Second)
		before := f.Count(locktest.OpRelease)
		closed.Store(true)
		time.Sleep(time.Minute)
		if n := f.Count(locktest.OpRelease) - before; n != 1 {
			t.Errorf("%d releases were sent to a closed Locker", n)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if n := seen.Count(holdfast.EventError); n != 2 { // the acquire and the one release
			t.Errorf("%d failures were reported", n)
		}
	})
}

// The release of a hold whose Locker was closed before fails once, and Shutdown does not
// wait for the lease to expire.
func TestShutdownAfterTheLockerWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		f := locktest.NewFaulty(t, memory.New(), func(string, int, holdfast.Lease) locktest.Fault {
			if closed.Load() {
				return locktest.Fault{Refuse: holdfast.ErrClosed}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f)
		h := locktest.MustLock(t, c, "job")
		closed.Store(true)
		start := time.Now()
		_ = c.Shutdown(t.Context())
		if took := time.Since(start); took > time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		if err := h.Release(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Release: %v", err)
		}
		if n := f.Count(locktest.OpRelease); n != 1 {
			t.Errorf("%d releases were sent to a closed Locker", n)
		}
	})
}
