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
	"github.com/holdfast-go/holdfast/test/locktest"
)

// closing is a Locker whose Close calls a function first.
type closing struct {
	holdfast.Locker
	before func(ctx context.Context) error
	closed chan struct{}
}

func newClosing(before func(ctx context.Context) error) *closing {
	return &closing{memory.New(), before, make(chan struct{})}
}

func (l *closing) Close(ctx context.Context) error {
	defer close(l.closed)
	return errors.Join(l.before(ctx), l.Locker.Close(ctx))
}

// Shutdown gives the Locker's Close no more time than it has itself, and does not wait for a Close
// that takes longer.
func TestShutdownBoundsTheClosingOfTheLocker(t *testing.T) {
	heeding := func(ctx context.Context) error {
		select {
		case <-time.After(10 * time.Second):
			return locktest.ErrInjected
		case <-ctx.Done():
			return nil
		}
	}
	ignoring := func(context.Context) error { time.Sleep(10 * time.Second); return nil }
	for name, before := range map[string]func(context.Context) error{"heeds its context": heeding, "ignores its context": ignoring} {
		for _, given := range []time.Duration{0, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				l := newClosing(before)
				c := locktest.NewClient(t, l)
				ctx, cancel := context.WithTimeout(t.Context(), given)
				defer cancel()
				start := time.Now()
				err := c.Shutdown(ctx)
				if took := time.Since(start); took > given+100*time.Millisecond {
					t.Errorf("%s, given %v: took %v", name, given, took)
				}
				left := errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "closing the backend has not returned")
				if left != (name == "ignores its context") {
					t.Errorf("%s, given %v: %v", name, given, err)
				}
				<-l.closed // also when the context had ended before
			})
		}
	}
}

// The release of a hold whose Locker was closed before fails once, and Shutdown does not
// wait for the lease to expire.
func TestShutdownAfterTheLockerWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		f := locktest.NewFaulty(t, memory.New(), locktest.While(&closed, locktest.Fault{Refuse: holdfast.ErrClosed}))
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

// After Shutdown the error says what is closed, with one prefix.
func TestErrorAfterShutdown(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	locktest.ShutDown(t, c)
	if _, err := c.Lock(t.Context(), "job"); err == nil || err.Error() != "holdfast: the client is closed" {
		t.Errorf("Lock: %v", err)
	}
}
