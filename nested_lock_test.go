package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Waiting for a lock within another one's hold ends with that hold. The error says why, but
// does not match the outer lock's loss: the inner one was never held.
func TestOuterLossIsNoLossOfTheInnerLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mustLock(t, newClient(t, store.Locker()), "inner")
		outer := mustLock(t, newClient(t, newFaulty(t, store.Locker(), refuse(opRenew))), "outer")
		c := newClient(t, store.Locker())
		held := mustLock(t, newClient(t, newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRelease {
				return fault{delay: time.Hour, deaf: true}
			}
			return fault{}
		})), "slow")
		released := make(chan error)
		go func() { released <- held.Release(context.Background()) }()
		runner := newRunner(t, c)
		for what, err := range map[string]error{
			"Lock":    func() error { _, err := c.Lock(outer.Context(), "inner"); return err }(),
			"Do":      c.Do(outer.Context(), "inner", nothing),
			"Run":     runner.Run(outer.Context(), nothing),
			"Release": held.Release(outer.Context()),
		} {
			if errors.Is(err, holdfast.ErrLost) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "lease lost") {
				t.Errorf("%s: %v", what, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errInjected) // a cause of the caller's own
		if _, err := c.Lock(ctx, "inner"); !errors.Is(err, errInjected) || !errors.Is(err, context.Canceled) {
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
		c := newClient(t, memory.New())
		err := c.Do(t.Context(), "job", func(ctx context.Context) error {
			_, err := c.Lock(context.WithoutCancel(ctx), "job")
			return err
		})
		if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), "the caller itself holds it") {
			t.Errorf("Lock: %v", err)
		}
	})
}

// The caller may change its bytes after WithData.
func TestWithDataKeepsNoSliceOfTheCaller(t *testing.T) {
	store := memory.NewStore()
	c := newClient(t, store.Locker())
	data := []byte("first")
	option := holdfast.WithData(data)
	copy(data, "later")
	mustLock(t, c, "job", option)
	r, err := c.Inspect(t.Context(), "job")
	if err != nil || string(r.Data) != "first" {
		t.Errorf("the record has %q, %v", r.Data, err)
	}
}
