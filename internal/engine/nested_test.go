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
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A wait for an inner lock with the context of an outer hold ends with that hold. The error says
// why, but does not match ErrLost: the inner lock was not held.
func TestLossOfTheOuterHoldIsNoLossOfTheInnerLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "inner")
		outer := locktest.MustLock(t, locktest.FaultyClient(t, store.Locker(), locktest.Refuse(locktest.OpRenew)), "outer")
		c := locktest.NewClient(t, store.Locker())
		held := locktest.MustLock(t, locktest.FaultyClient(t, store.Locker(),
			locktest.Each(locktest.OpRelease, locktest.Fault{Delay: time.Hour, IgnoreContext: true})), "slow")
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
		cancel(locktest.ErrInjected) // the caller's own cause
		if _, err := c.Lock(ctx, "inner"); !errors.Is(err, locktest.ErrInjected) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}
