package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// A pool whose places are all of this process passes each on as a lock.
func TestHandOverOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		c := locktest.NewClient(t, f)
		check := locktest.NewExclusive(t)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				h := locktest.MustLock(t, c, "pool", holdfast.WithSlots(3))
				check.Enter(h.Context(), h.Name(), h.Token())
				time.Sleep(time.Duration(10 + i)) // one is released at a time
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if h, r := f.Count(locktest.OpHandOver), f.Count(locktest.OpRelease); h != 6 || r != 3 {
			t.Errorf("%d hand-overs and %d releases, 6 of 9 waited", h, r)
		}
	})
}

// One who waits for any place of a pool, and asks for those of others already, has the
// place that is released here as before; one who may not have that place is not offered it.
func TestHandOverOfSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
		for _, tc := range []struct {
			other  *holdfast.Client // has the other of two places
			places int              // that the waiter may have
		}{{there, 2}, {here, 1}} {
			others := locktest.MustLock(t, tc.other, "pool", holdfast.WithSlots(2))
			own := locktest.MustLock(t, here, "pool", holdfast.WithSlots(2))
			if tc.places == 1 && own.Slot() == 0 {
				own, others = others, own
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				h := locktest.MustLock(t, here, "pool", holdfast.WithSlots(tc.places))
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			before := f.Count(locktest.OpHandOver)
			if err := own.Release(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := f.Count(locktest.OpHandOver) - before; n != 0 {
				t.Errorf("%d places: %d hand-overs", tc.places, n)
			}
			if err := others.Release(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
		}
	})
}
