package holdfast_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// A pool whose places are all of this process passes each on as a lock.
func TestHandOverOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		c := newClient(t, f)
		check := newExclusive(t)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				h := mustLock(t, c, "pool", holdfast.WithSlots(3))
				check.enter(h.Context(), h.Name(), h.Token())
				time.Sleep(time.Duration(10 + i)) // one is released at a time
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if h, r := f.count(opHandOver), f.count(opRelease); h != 6 || r != 3 {
			t.Errorf("%d hand-overs and %d releases, 6 of 9 waited", h, r)
		}
	})
}

// One who waits for any place of a pool, and asks for those of others already, has the
// place that is released here as before; one who may not have that place is not offered it.
func TestHandOverOfSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		here, there := newClient(t, f), newClient(t, store.Locker())
		for _, tc := range []struct {
			other  *holdfast.Client // has the other of two places
			places int              // that the waiter may have
		}{{there, 2}, {here, 1}} {
			others := mustLock(t, tc.other, "pool", holdfast.WithSlots(2))
			own := mustLock(t, here, "pool", holdfast.WithSlots(2))
			if tc.places == 1 && own.Slot() == 0 {
				own, others = others, own
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				h := mustLock(t, here, "pool", holdfast.WithSlots(tc.places))
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			before := f.count(opHandOver)
			if err := own.Release(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := f.count(opHandOver) - before; n != 0 {
				t.Errorf("%d places: %d hand-overs", tc.places, n)
			}
			if err := others.Release(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
		}
	})
}
