package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestTryLockNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		h := locktest.MustTryLock(t, c, "job", holdfast.WithOwner("web-3"), holdfast.WithData([]byte("x")))
		time.Sleep(3 * time.Second)
		_, err := c.TryLock(t.Context(), "job")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Record.Owner != "web-3" || held.Record.Token != h.Token() || held.Record.Remaining != 27*time.Second {
			t.Errorf("err = %v", err)
		}
		locktest.Release(t, h)
		r, err := c.Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateFree || string(r.Data) != "x" {
			t.Errorf("Inspect: %+v, %v", r, err)
		}
	})
}

// A driver may leave the name out of the record that was asked for by its name.
func TestInspectNamesTheLock(t *testing.T) {
	c := locktest.NewClient(t, driver.Intercept(memory.New(), func(context.Context, driver.Call, driver.Next) driver.Answer {
		return driver.Answer{Record: driver.Record{State: driver.StateFree}}
	}))
	if r, err := c.Inspect(t.Context(), "job"); err != nil || r.Name != "job" {
		t.Errorf("Inspect: %+v, %v", r, err)
	}
}

// The caller's context ends while a request is under way. The error says why the lock was not granted before.
func TestWaitThatEndsDuringARequestNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ driver.Lease) (fault locktest.Fault) {
			if fault.Hang = op == locktest.OpAcquire && n == 2; fault.Hang {
				time.AfterFunc(time.Second, cancel)
			}
			return fault
		})
		f.NoBatchReads = true
		_, err := locktest.NewClient(t, f).Lock(ctx, "job")
		if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "held by") {
			t.Errorf("Lock: %v", err)
		}
	})
}

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
