package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A waiter for many slots makes a few calls a minute while nothing changes.
func TestWaitingForSlotsCostsAFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 100
		store := memory.NewStore()
		holder := locktest.NewClient(t, store.Locker(), holdfast.WithSlots(slots))
		var last *holdfast.Hold
		for range slots {
			last = locktest.MustLock(t, holder, "pool")
		}
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		c := locktest.NewClient(t, f, holdfast.WithSlots(slots))
		granted := make(chan struct{})
		go func() { locktest.MustLock(t, c, "pool"); close(granted) }()
		time.Sleep(time.Minute)
		before := f.Total()
		time.Sleep(10 * time.Minute)
		if calls := f.Total() - before; calls > 60 || f.Count(locktest.OpAcquire) > 2 {
			t.Errorf("%d calls in 10 minutes, %d requests", calls, f.Count(locktest.OpAcquire))
		}
		start := time.Now()
		_ = last.Release(t.Context())
		<-granted
		if time.Since(start) != 0 {
			t.Errorf("granted after %v", time.Since(start))
		}
	})
}

// A waiter sends no requests for slots that its own process holds, and takes one as soon as it is
// released.
func TestNoRequestsForOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 4
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.NoBatchReads = true
		c := locktest.NewClient(t, f, holdfast.WithSlots(slots), holdfast.WithPollInterval(10*time.Second))
		var own []*holdfast.Hold
		for range slots - 1 {
			own = append(own, locktest.MustTryLock(t, c, "pool"))
		}
		locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithSlots(slots)), "pool")
		granted := make(chan *holdfast.Hold)
		go func() { granted <- locktest.MustLock(t, c, "pool") }()
		synctest.Wait()
		before := f.Count(locktest.OpAcquire)
		time.Sleep(10*time.Minute + time.Second)
		if n := f.Count(locktest.OpAcquire) - before; n > 80 || n < 50 {
			t.Errorf("%d requests in 10 minutes for the one slot of another process, at a poll interval of 10 s", n)
		}
		start := time.Now()
		_ = own[1].Release(t.Context())
		if h := <-granted; h.Slot() != own[1].Slot() || time.Since(start) != 0 {
			t.Errorf("slot %d taken %v after slot %d was freed", h.Slot(), time.Since(start), own[1].Slot())
		}
	})
}

// A slot whose record is damaged does not keep callers from the other slots. Requests for it become rarer, although requests for the
// other slots are answered.
func TestDamagedSlotCostsFewRequests(t *testing.T) {
	for _, own := range []bool{false, true} { // the third slot is held by the same process, and it has a Watcher
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), locktest.Named("", "pool#2", locktest.Fault{Refuse: locktest.ErrInjected}))
			f.Watcher = own
			c := locktest.NewClient(t, f, holdfast.WithSlots(3), holdfast.WithPollInterval(15*time.Second))
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "pool")
			var release func()
			if own {
				h := locktest.MustLock(t, c, "pool")
				release = func() { locktest.Release(t, h) }
			} else {
				third, err := store.Locker().TryAcquire(t.Context(), driver.Request{Name: "pool#3", ID: driver.NewLeaseID("third"), TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				release = func() { _ = store.Locker().Release(t.Context(), third) }
			}
			granted := make(chan struct{})
			go func() { locktest.MustLock(t, c, "pool"); close(granted) }()
			time.Sleep(10 * time.Minute)
			if n := f.Count(locktest.OpAcquire); n > 700 { // a plain lock with such a record: 240
				t.Errorf("%d requests in 10 minutes", n)
			}
			start := time.Now()
			release()
			<-granted
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("own %v: granted after %v", own, d)
			}
		})
	}
}

// Callers of the same lock do not all try its first slot first.
func TestFirstSlotIsRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New(), holdfast.WithSlots(10))
		taken := map[int]bool{}
		for i := range 50 {
			taken[locktest.MustTryLock(t, c, fmt.Sprint("pool ", i)).Slot()] = true
		}
		if len(taken) < 3 {
			t.Errorf("of 10 free slots, 50 callers took only %v", taken)
		}
	})
}

// A waiter takes a free slot although this process holds more slots than the waiter may take.
func TestOwnSlotsBeyondThoseOfTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.NewStore().Locker())
		first := locktest.MustTryLock(t, c, "pool")
		for range 3 {
			locktest.MustTryLock(t, c, "pool", holdfast.WithSlots(4))
		}
		_ = first.Release(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "pool"); err != nil { // the first slot, which is free
			t.Error(err)
		}
	})
}
