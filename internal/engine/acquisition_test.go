package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// A lease whose grant is reported when its time is over is of no use: it is not taken for a
// hold, and does not stay taken either.
func TestLateGrantIsNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpAcquire && n == 1 {
				return locktest.Fault{Delay: 25 * time.Second, IgnoreContext: true} // TTL less grace
			}
			return locktest.Fault{}
		}))
		if h, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("TryLock: %v, %v", h, err)
		}
		synctest.Wait()
		if locktest.IsHeld(t, store, "job") {
			t.Error("not cleaned up")
		}
	})
}

// A waiter goes on after a late grant, and its next request has another ID: the lease of the
// first may have ended by now, and an ID that was granted once might get its old token again.
func TestLateGrantEndsItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		var ids []holdfast.Lease
		c := locktest.NewClient(t, locktest.NewFaulty(t, under, func(op string, n int, l holdfast.Lease) locktest.Fault {
			if op != locktest.OpAcquire {
				return locktest.Fault{}
			}
			ids = append(ids, l)
			if n == 1 {
				return locktest.Fault{Delay: 26 * time.Second, IgnoreContext: true}
			}
			return locktest.Fault{}
		}))
		h := locktest.MustLock(t, c, "job")
		if len(ids) < 2 || slices.ContainsFunc(ids[1:], func(l holdfast.Lease) bool { return l.ID == ids[0].ID }) {
			t.Errorf("of %d requests, others have the ID of the first", len(ids))
		}
		time.Sleep(time.Minute)
		if h.Err() != nil {
			t.Errorf("the clean-up of the first request hit the second: %v", h.Err())
		}
	})
}

// A caller that has gone away does not know what became of its request, whatever the
// driver's error looks like: it may be the cause of the caller's own context.
func TestRefusalOfACanceledAttemptIsDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		under := store.Locker()
		c := locktest.NewClient(t, locktest.Scripted{Locker: under, OnAcquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			_, _ = under.TryAcquire(ctx, req) // applied, and the answer comes too late
			<-ctx.Done()
			return holdfast.Lease{}, fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
		}})
		for name, take := range map[string]func(context.Context, string) error{
			"by TryLock": func(ctx context.Context, name string) error { _, err := c.TryLock(ctx, name); return err },
			"by Lock":    func(ctx context.Context, name string) error { _, err := c.Lock(ctx, name); return err },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(&holdfast.HeldError{Record: holdfast.Record{Name: "another"}}) })
			start := time.Now()
			if err := take(ctx, name); err == nil || time.Since(start) != time.Second {
				t.Errorf("%s after %v: %v", name, time.Since(start), err)
			}
			synctest.Wait()
			if locktest.IsHeld(t, store, name) {
				t.Errorf("%s: not cleaned up", name)
			}
		}
	})
}

// Of many slots, an attempt that ended with its caller is the last: the next slot is not
// asked for.
func TestCanceledAttemptAsksForNoOtherSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(ctx context.Context, _ driver.Request) (holdfast.Lease, error) {
			asked++
			<-ctx.Done()
			return holdfast.Lease{}, context.Cause(ctx)
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&holdfast.HeldError{Record: holdfast.Record{Name: "another"}}) })
		if _, err := c.TryLock(ctx, "pool", holdfast.WithSlots(3)); err == nil || asked != 1 {
			t.Errorf("%d slots were asked for: %v", asked, err)
		}
	})
}
