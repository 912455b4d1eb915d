package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestPromise05_LostAnswersAreHarmless(t *testing.T) {
	for name, ft := range map[string]fault{
		"before the write": {refuse: errInjected},
		"after the write":  {lose: errInjected},
		"hung":             {hang: true},
		"lands later":      {late: 4 * time.Second},
	} {
		for _, op := range []string{opAcquire, opRenew, opRelease} {
			t.Run(op+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					c := newClient(t, newFaulty(t, store.Locker(), func(o string, n int, _ holdfast.Lease) fault {
						if o == op && n <= 2 {
							return ft
						}
						return fault{}
					}))
					h := mustLock(t, c, "job")
					time.Sleep(45 * time.Second)
					if h.Err() != nil {
						t.Errorf("lost: %v", h.Err())
					}
					if err := h.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
					if isHeld(t, store, "job") {
						t.Error("held after Release")
					}
				})
			})
		}
	}
}

// An acquire that ended in doubt can land after the first clean-up: the clean-up goes
// on for one TTL, and so frees what would else stay taken for another TTL.
func TestPromise05_DoubtfulAcquireIsCleanedUp(t *testing.T) {
	for name, ft := range map[string]fault{
		"applied, reply lost":                  {lose: errInjected},
		"lands 20 s later":                     {late: 20 * time.Second},
		"lands just before the TTL has passed": {late: 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				ids := map[string]bool{}
				f := newFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) fault {
					if op != opAcquire {
						return fault{}
					}
					if ids[l.ID.Reveal()] {
						t.Error("an ID in clean-up was used again")
					}
					ids[l.ID.Reveal()] = true
					return ft
				})
				c := newClient(t, f)
				_, err := c.TryLock(t.Context(), "job")
				if err == nil || errors.Is(err, holdfast.ErrHeld) {
					t.Fatalf("TryLock: %v", err)
				}
				time.Sleep(ft.late + 9*time.Second) // at most the longest pause of the clean-up later
				if isHeld(t, store, "job") {
					t.Error("an acquire in doubt keeps the lock")
				}
				time.Sleep(time.Minute)
				n := f.count(opRelease)
				time.Sleep(time.Hour)
				if f.count(opRelease) != n {
					t.Error("the clean-up never ends")
				}
				_, _ = c.TryLock(t.Context(), "job")
			})
		})
	}
}

// The same for a hold whose acquiring request was sent twice: the first may
// land after the hold was released.
func TestPromise05_DuplicateLandsAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opAcquire && n == 1 {
				return fault{late: 10 * time.Second}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(19 * time.Second)
		if isHeld(t, store, "job") {
			t.Error("a duplicate of the acquire keeps the lock after its release")
		}
	})
}
