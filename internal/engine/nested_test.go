package engine_test

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

// Do for a name from within Do for that name waits for itself.
func TestCorner_Reentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_ = c.Do(ctx, "job", func(ctx context.Context) error {
			return c.Do(ctx, "job", func(context.Context) error { return nil })
		})
		if d := time.Since(start); d >= time.Hour {
			t.Errorf("waited %v for itself", d)
		}
	})
}

// Waiting for a lock within another one's hold ends with that hold. The error says why, but
// does not match the outer lock's loss: the inner one was never held.
func TestOuterLossIsNoLossOfTheInnerLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "inner")
		outer := locktest.MustLock(t, locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), locktest.Refuse(locktest.OpRenew))), "outer")
		c := locktest.NewClient(t, store.Locker())
		held := locktest.MustLock(t, locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpRelease {
				return locktest.Fault{Delay: time.Hour, IgnoreContext: true}
			}
			return locktest.Fault{}
		})), "slow")
		released := make(chan error)
		go func() { released <- held.Release(context.Background()) }()
		runner := locktest.NewRunner(t, c)
		for what, err := range map[string]error{
			"Lock":    func() error { _, err := c.Lock(outer.Context(), "inner"); return err }(),
			"Do":      c.Do(outer.Context(), "inner", locktest.EmptyTask),
			"Run":     runner.Run(outer.Context(), locktest.EmptyTask),
			"Release": held.Release(outer.Context()),
		} {
			if errors.Is(err, holdfast.ErrLost) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "lease lost") {
				t.Errorf("%s: %v", what, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(locktest.ErrInjected) // a cause of the caller's own
		if _, err := c.Lock(ctx, "inner"); !errors.Is(err, locktest.ErrInjected) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// A context that was detached from a hold is still the hold's: its caller may be what the hold waits for.
func TestLockWithinItsOwnHoldDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		err := c.Do(t.Context(), "job", func(ctx context.Context) error {
			_, err := c.Lock(context.WithoutCancel(ctx), "job")
			return err
		})
		if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), "the caller itself holds it") {
			t.Errorf("Lock: %v", err)
		}
	})
}
