package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Each slot has one holder at a time, whatever fails.
func TestEachSlotIsExclusive(t *testing.T) {
	for _, batchReads := range []bool{true, false} {
		t.Run(fmt.Sprintf("batch reads %v", batchReads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { slotsUnderFaults(t, batchReads) })
		})
	}
}

func slotsUnderFaults(t *testing.T, batchReads bool) {
	const slots = 3
	store := memory.NewStore()
	check := locktest.NewPool(t, slots)
	var wg sync.WaitGroup
	var events atomic.Int64 // failures and grants
	const poll = time.Second
	var paces []*locktest.Pace
	for p := range 4 {
		l := locktest.NewFaulty(t, store.Locker(), locktest.RandomFaults(rand.New(rand.NewPCG(uint64(p), 7)), &events))
		l.Watcher, l.NoBatchReads = p%2 == 0, !batchReads
		pace := locktest.NewPace(t, 10*time.Second, poll)
		pace.Slots = slots
		l.Check, paces = pace.Note, append(paces, pace)
		c := locktest.NewClient(t, l, holdfast.WithTTL(10*time.Second), holdfast.WithSlots(slots), holdfast.WithPollInterval(poll))
		for range 4 {
			wg.Go(func() {
				for range 10 {
					err := c.Do(t.Context(), "pool", func(ctx context.Context) error {
						h, _ := holdfast.HoldFromContext(ctx)
						events.Add(1)
						check.Enter(h)
						locktest.SlowToStop(ctx, 12*time.Second)
						return nil
					})
					if err != nil && !errors.Is(err, holdfast.ErrLost) {
						t.Errorf("Do: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, p := range paces {
		p.Verify(int(events.Load()))
	}
	if len(check.Token) != slots {
		t.Errorf("%d slots were used", len(check.Token))
	}
}

func TestSlotsAreTakenAndFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := locktest.NewPool(t, 3)
		three := holdfast.WithSlots(3)
		var holds []*holdfast.Hold
		first := locktest.NewClient(t, store.Locker())
		holds = append(holds, locktest.MustLock(t, first, "pool", three), locktest.MustTryLock(t, first, "pool", three))
		holds = append(holds, locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "pool", three))
		for _, h := range holds {
			check.Enter(h)
		}
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		c := locktest.NewClient(t, f)
		_, err := c.TryLock(t.Context(), "pool", three)
		var held *holdfast.HeldError
		if !errors.As(err, &held) || !check.Slots[held.Record.Name] || !strings.Contains(err.Error(), "all 3 slots are held") {
			t.Errorf("TryLock: %v", err)
		}
		if f.Count(locktest.OpAcquire) != 1 || f.Count(locktest.OpInspect) != 1 {
			t.Errorf("%d requests, %d reads for three slots", f.Count(locktest.OpAcquire), f.Count(locktest.OpInspect))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Lock(ctx, "pool", three)
		if !errors.As(err, &held) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "all 3 slots are held") {
			t.Errorf("Lock: %v", err)
		}
		// A waiter takes whichever slot is released, at once.
		for range 10 {
			i := rand.N(3)
			before := f.Count(locktest.OpAcquire)
			var freed time.Time
			go func() {
				time.Sleep(7 * time.Second)
				freed = time.Now()
				_ = holds[i].Release(t.Context())
			}()
			h := locktest.MustLock(t, c, "pool", three)
			if !freed.Equal(time.Now()) || h.Name() != holds[i].Name() {
				t.Errorf("%q taken %v after %q was freed", h.Name(), time.Since(freed), holds[i].Name())
			}
			if n := f.Count(locktest.OpAcquire) - before; n > 2 {
				t.Errorf("%d requests for one slot", n)
			}
			check.Enter(h)
			holds[i] = h
			c = locktest.NewClient(t, f)
		}
	})
}

// The waiters of one process are served in the order of arrival, one for each slot that is
// released, also by the process itself.
func TestSlotsServeLocalWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, waiters = 3, 60
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f, holdfast.WithSlots(slots))
		check := locktest.NewPool(t, slots)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				h := locktest.MustLock(t, c, "pool")
				check.Enter(h)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				work := time.Second
				if i < slots { // so that slots are released one at a time
					work += time.Duration(i) * 100 * time.Millisecond
				}
				time.Sleep(work)
				_ = h.Release(t.Context())
			})
			synctest.Wait()
		}
		start := time.Now()
		wg.Wait()
		if d := time.Since(start); d > (waiters/slots+1)*time.Second {
			t.Errorf("it took %v", d)
		}
		for i, got := range order {
			if got != i {
				t.Fatalf("waiter %d was served in place %d: %v", got, i, order)
			}
		}
		if n := f.Count(locktest.OpAcquire); n > 2*waiters {
			t.Errorf("%d requests for %d waiters", n, waiters)
		}
	})
}

// Promise 10 holds for each slot of a lock.
func TestNoSlotIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := stuckHolder(t, "pool#2")
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "pool")
		start := time.Now()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithSlots(2)), "pool")
		if d := time.Since(start); d < 20*time.Second || d > 27*time.Second || h.Slot() != 1 {
			t.Errorf("slot %d granted after %v", h.Slot(), d)
		}
	})
}

// A request in doubt for one slot is cleaned up when another slot is granted.
func TestSlotInDoubtIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the first slot is random
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), locktest.First(locktest.OpAcquire, locktest.Fault{Late: 4 * time.Second}))
			c := locktest.NewClient(t, f, holdfast.WithSlots(3))
			h := locktest.MustLock(t, c, "pool")
			time.Sleep(15 * time.Second) // less than its lease would last
			for slot := range 3 {
				if name := locktest.SlotRecord("pool", slot); locktest.IsHeld(t, store, name) != (name == h.Name()) {
					t.Errorf("%q: held %v, by %q", name, locktest.IsHeld(t, store, name), h.Name())
				}
			}
			if h.Err() != nil {
				t.Errorf("the hold is lost: %v", h.Err())
			}
		}
	})
}

// Without slots, or with one, nothing is read, and one request is sent.
func TestOneSlotIsAPlainLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f)
		h := locktest.MustLock(t, c, "pool", holdfast.WithSlots(1))
		if h.Name() != "pool" || h.Slot() != 0 {
			t.Errorf("%q, slot %d", h.Name(), h.Slot())
		}
		if _, err := c.TryLock(t.Context(), "pool"); !errors.Is(err, holdfast.ErrHeld) || strings.Contains(err.Error(), "slots") {
			t.Errorf("TryLock: %v", err)
		}
		if f.Count(locktest.OpAcquire) != 2 || f.Count(locktest.OpInspect) != 0 {
			t.Errorf("%d requests, %d reads", f.Count(locktest.OpAcquire), f.Count(locktest.OpInspect))
		}
	})
}

// A LeaseManager and Partitions have one holder for each name, also if the Client's default is
// WithSlots with several.
func TestLeaseManagersAndPartitionsIgnoreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		names := locktest.Names("lease ", 20)
		var managers []*leases.LeaseManager
		for range 3 {
			m := locktest.NewManager(t, locktest.NewClient(t, store.Locker(), holdfast.WithSlots(3)))
			locktest.MustAdd(t, m, names...)
			managers = append(managers, m)
		}
		time.Sleep(5 * time.Minute)
		var held []string
		for _, m := range managers {
			for _, l := range m.Leases() {
				held = append(held, l.Name)
			}
		}
		slices.Sort(held)
		if !slices.Equal(held, names) {
			t.Errorf("held by three managers: %v", held)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 8, holdfast.WithSlots(3))
		f.Work = func(ctx context.Context, i int) error {
			if h, _ := holdfast.HoldFromContext(ctx); h.Slot() != 0 {
				t.Errorf("the work on partition %d has the hold of %q", i, h.Name())
			}
			<-ctx.Done()
			return ctx.Err()
		}
		f.Join()
		f.Join()
		f.UntilEven(time.Minute)
		f.End()
	})
}

// Callers with different numbers of slots share them: the lock has as many as the greatest number.
func TestCallersWithDifferentNumbersOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.NewStore().Locker())
		for range 4 {
			locktest.MustTryLock(t, c, "pool", holdfast.WithSlots(4))
		}
		for _, n := range []int{1, 2, 4} {
			if _, err := c.TryLock(t.Context(), "pool", holdfast.WithSlots(n)); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%d slots: %v", n, err)
			}
		}
		locktest.MustTryLock(t, c, "pool", holdfast.WithSlots(5))
	})
}

func TestLockFailsWithinHoldsOfAllItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.NewStore().Locker())
		two := holdfast.WithSlots(2)
		nested := false
		err := c.Do(t.Context(), "pool", func(ctx context.Context) error {
			return c.Do(ctx, "pool", func(ctx context.Context) error {
				nested = true
				if _, err := c.Lock(ctx, "pool"); !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("Lock of the first slot: %v", err)
				}
				_, err := c.Lock(ctx, "pool", two)
				return err
			}, two)
		}, two)
		if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), "would deadlock") || !nested {
			t.Errorf("nested %v, err = %v", nested, err)
		}
	})
}

// The name of another lock's slot is no lock's name: the two would exclude each other.
func TestNamesOfSlotsAreRefused(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for name, refused := range map[string]bool{
		"job#2": true, "job#31": true, "job#2#2": true,
		"job#1": false, "job#02": false, "job#": false, "job#x": false, "#2": false, "issue #2 done": false,
	} {
		_, err := c.TryLock(t.Context(), name)
		if errors.Is(err, driver.ErrInvalid) != refused || err != nil && !refused {
			t.Errorf("%s: error %v, want it refused: %v", name, err, refused)
		}
		if refused && (!strings.Contains(err.Error(), "slot") || !strings.Contains(err.Error(), "Name")) {
			t.Errorf("the error does not say why: %v", err)
		}
	}
}
