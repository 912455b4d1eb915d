package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// A lease whose grant is reported when its time is over is of no use: it is not taken for a
// hold, and does not stay taken either.
func TestLateGrantIsNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opAcquire && n == 1 {
				return fault{delay: 25 * time.Second, deaf: true} // TTL less grace
			}
			return fault{}
		}))
		if h, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("TryLock: %v, %v", h, err)
		}
		synctest.Wait()
		if isHeld(t, store, "job") {
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
		c := newClient(t, newFaulty(t, under, func(op string, n int, l holdfast.Lease) fault {
			if op != opAcquire {
				return fault{}
			}
			ids = append(ids, l)
			if n == 1 {
				return fault{delay: 26 * time.Second, deaf: true}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
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
		c := newClient(t, changed{Locker: under, acquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
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
			if isHeld(t, store, name) {
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
		c := newClient(t, changed{Locker: memory.New(), acquire: func(ctx context.Context, _ driver.Request) (holdfast.Lease, error) {
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

// Requests that were sent one after another may land until one TTL after the last of them,
// and are cleaned up until then.
func TestCleanUpLastsForTheLatestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var last time.Time
		start := time.Now()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case op != opAcquire:
				return fault{}
			case time.Since(start) < 10*time.Second:
				return fault{refuse: errInjected}
			}
			last = time.Now()
			time.AfterFunc(time.Second, cancel)
			return fault{late: ttl - time.Second} // lands although the caller has gone
		}), holdfast.WithTTL(ttl))
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		mu.Lock()
		landed := time.Until(last.Add(ttl - time.Second))
		mu.Unlock()
		time.Sleep(landed + 2*time.Second)
		if isHeld(t, store, "job") {
			t.Error("the clean-up ended one TTL after the first request, before the last one landed")
		}
	})
}
