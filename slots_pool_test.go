package holdfast_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// A pool of leaders: always as many as there are slots, until too few are left.
func TestPoolOfLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, instances = 3, 8
		store := memory.NewStore()
		check := newPool(t, slots)
		var runners []*holdfast.LeaderAwareRunner
		var wg sync.WaitGroup
		for range instances {
			r, err := holdfast.NewLeaderAwareRunner(newClient(t, store.Locker()), "pool", holdfast.WithSlots(slots))
			if err != nil {
				t.Fatal(err)
			}
			runners = append(runners, r)
			wg.Go(func() {
				_ = r.Run(t.Context(), func(ctx context.Context) error {
					h, _ := holdfast.HoldFromContext(ctx)
					check.enter(h)
					<-ctx.Done()
					return ctx.Err()
				})
			})
		}
		for left := instances; left >= 0; left-- {
			time.Sleep(time.Minute)
			leaders, last := 0, -1
			for i, r := range runners {
				if r.IsLeader() {
					leaders, last = leaders+1, i
				}
			}
			if leaders != min(slots, left) {
				t.Errorf("%d leaders of %d instances", leaders, left)
			}
			r, err := runners[0].Leader(t.Context())
			if err != nil || (r.State == driver.StateHeld) != (left > 0) {
				t.Errorf("Leader: %+v, %v with %d instances", r, err, left)
			}
			if last >= 0 {
				if err := runners[last].Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		wg.Wait()
	})
}

// The periodic job of a pool: RunTaskOnLeader runs it in at most so many instances.
func TestPoolOfPeriodicLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, instances = 2, 5
		store := memory.NewStore()
		var runners []*holdfast.LeaderAwareRunner
		for range instances {
			r, err := holdfast.NewLeaderAwareRunner(newClient(t, store.Locker()), "pool", holdfast.WithSlots(slots))
			if err != nil {
				t.Fatal(err)
			}
			runners = append(runners, r)
		}
		for range 20 {
			ran := 0
			for _, r := range runners {
				did, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil })
				if err != nil {
					t.Error(err)
				}
				if did {
					ran++
				}
			}
			if ran != slots {
				t.Errorf("ran in %d instances", ran)
			}
			time.Sleep(5 * time.Second)
		}
		for _, r := range runners {
			_ = r.Close(t.Context())
		}
	})
}

// What waiting for slots costs while nothing changes.
func TestWaitingForSlotsCostsAFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 100
		store := memory.NewStore()
		holder := newClient(t, store.Locker(), holdfast.WithSlots(slots))
		var last *holdfast.Hold
		for range slots {
			last = mustLock(t, holder, "pool")
		}
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		c := newClient(t, f, holdfast.WithSlots(slots))
		granted := make(chan struct{})
		go func() { mustLock(t, c, "pool"); close(granted) }()
		time.Sleep(time.Minute)
		before := f.total()
		time.Sleep(10 * time.Minute)
		if calls := f.total() - before; calls > 60 || f.count(opAcquire) > 2 {
			t.Errorf("%d calls in 10 minutes, %d attempts", calls, f.count(opAcquire))
		}
		start := time.Now()
		_ = last.Release(t.Context())
		<-granted
		if time.Since(start) != 0 {
			t.Errorf("granted after %v", time.Since(start))
		}
	})
}

// Slots that this process holds itself are not asked for, and are taken as soon as it
// frees them.
func TestOwnSlotsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 4
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.noLooks = true
		c := newClient(t, f, holdfast.WithSlots(slots), holdfast.WithPollInterval(10*time.Second))
		var own []*holdfast.Hold
		for range slots - 1 {
			own = append(own, mustTryLock(t, c, "pool"))
		}
		mustLock(t, newClient(t, store.Locker(), holdfast.WithSlots(slots)), "pool")
		granted := make(chan *holdfast.Hold)
		go func() { granted <- mustLock(t, c, "pool") }()
		synctest.Wait()
		before := f.count(opAcquire)
		time.Sleep(10*time.Minute + time.Second)
		if n := f.count(opAcquire) - before; n > 80 || n < 50 {
			t.Errorf("%d attempts in 10 minutes for the one slot of another, every 10 s", n)
		}
		start := time.Now()
		_ = own[1].Release(t.Context())
		if h := <-granted; h.Slot() != own[1].Slot() || time.Since(start) != 0 {
			t.Errorf("slot %d taken %v after slot %d was freed", h.Slot(), time.Since(start), own[1].Slot())
		}
	})
}

// A slot whose record is damaged is asked for more and more seldom, although the others
// answer.
func TestDamagedSlotCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), func(_ string, _ int, l holdfast.Lease) fault {
			if l.Name == "pool#2" {
				return fault{refuse: errInjected}
			}
			return fault{}
		})
		c := newClient(t, f, holdfast.WithSlots(3), holdfast.WithPollInterval(15*time.Second))
		holder := newClient(t, store.Locker())
		mustLock(t, holder, "pool")
		h := mustLock(t, holder, "pool#3")
		granted := make(chan struct{})
		go func() { mustLock(t, c, "pool"); close(granted) }()
		time.Sleep(10 * time.Minute)
		if n := f.count(opAcquire); n > 700 { // a plain lock with such a record: 240
			t.Errorf("%d attempts in 10 minutes", n)
		}
		start := time.Now()
		_ = h.Release(t.Context())
		<-granted
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("granted after %v", d)
		}
	})
}

// A slot that failed is asked for last the next time: the free one beside it is taken by the
// second attempt at the latest.
func TestDamagedSlotIsAskedForLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 60 { // which slot comes first is random
			f := newFaulty(t, memory.New(), func(_ string, _ int, l holdfast.Lease) fault {
				if strings.HasSuffix(l.Name, "#2") {
					return fault{refuse: errInjected}
				}
				return fault{}
			})
			mustLock(t, newClient(t, f, holdfast.WithSlots(2)), fmt.Sprint("pool ", i))
			if n := f.count(opAcquire); n > 2 {
				t.Fatalf("%d attempts with one of two slots free", n)
			}
		}
	})
}

// Processes that come for the same slots do not all begin with the first.
func TestSlotsAreAskedForFromARandomOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memory.New(), holdfast.WithSlots(10))
		taken := map[int]bool{}
		for i := range 50 {
			taken[mustTryLock(t, c, fmt.Sprint("pool ", i)).Slot()] = true
		}
		if len(taken) < 3 {
			t.Errorf("of 10 free slots, 50 callers took only %v", taken)
		}
	})
}

// Slots that a waiter cannot take do not keep it from those that it can.
func TestHeldSlotsBeyondThoseOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memory.NewStore().Locker())
		first := mustTryLock(t, c, "pool")
		for range 3 {
			mustTryLock(t, c, "pool", holdfast.WithSlots(4))
		}
		_ = first.Release(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "pool"); err != nil { // the first slot, which is free
			t.Error(err)
		}
	})
}
