package promises_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 5: a request may be applied although its reply was lost, is late or never comes.
func TestPromise05_LostAnswersAreHarmless(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"before the write": {Refuse: locktest.ErrInjected},
		"after the write":  {Lose: locktest.ErrInjected},
		"hung":             {Hang: true},
		"lands later":      {Late: 4 * time.Second},
	} {
		for _, op := range []string{locktest.OpAcquire, locktest.OpRenew, locktest.OpRelease} {
			t.Run(op+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					c := locktest.FaultyClient(t, store.Locker(), func(o string, n int, _ holdfast.Lease) locktest.Fault {
						if o == op && n <= 2 {
							return ft
						}
						return locktest.Fault{}
					})
					h := locktest.MustLock(t, c, "job")
					time.Sleep(45 * time.Second)
					if h.Err() != nil {
						t.Errorf("lost: %v", h.Err())
					}
					if err := h.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
					if locktest.IsHeld(t, store, "job") {
						t.Error("held after Release")
					}
				})
			})
		}
	}
}

// An acquire in doubt can land after the first request of its cleanup. The cleanup therefore continues
// for one TTL; otherwise the lock would stay held for another TTL. It begins at once, because there may be no further call.
func TestPromise05_AcquireInDoubtIsCleanedUp(t *testing.T) {
	for how, runner := range map[string]bool{"TryLock": false, "RunTaskOnLeader": true} {
		for name, ft := range map[string]locktest.Fault{
			"applied, reply lost":                  {Lose: locktest.ErrInjected},
			"hung, undone":                         {Hang: true},
			"lands 20 s later":                     {Late: 20 * time.Second},
			"lands just before the TTL has passed": {Late: 29 * time.Second},
		} {
			locktest.Bubble(t, how+" "+name, func(t *testing.T) {
				store := memory.NewStore()
				ids := map[string]bool{}
				f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) (none locktest.Fault) {
					if op != locktest.OpAcquire {
						return none
					}
					if ids[l.ID.Reveal()] {
						t.Error("an ID in cleanup was used again")
					}
					ids[l.ID.Reveal()] = true
					if n == 1 {
						return ft
					}
					return none
				})
				c := locktest.NewClient(t, f)
				r := locktest.NewRunner(t, c)
				try := func() (got bool, err error) {
					if runner {
						return r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
					}
					h, err := c.TryLock(t.Context(), "job")
					return h != nil, err
				}
				if got, err := try(); got || err == nil || errors.Is(err, holdfast.ErrHeld) {
					t.Fatalf("%s: %v, %v; want an error", how, got, err)
				}
				time.Sleep(ft.Late + 9*time.Second) // at most the longest backoff of the cleanup later
				if locktest.IsHeld(t, store, "job") {
					t.Error("an acquire in doubt keeps the lock")
				}
				time.Sleep(time.Minute)
				n := f.Count(locktest.OpRelease)
				time.Sleep(time.Hour)
				if f.Count(locktest.OpRelease) != n {
					t.Error("the cleanup never ends")
				}
				if got, err := try(); !got || err != nil {
					t.Errorf("%s afterwards: %v, %v", how, got, err)
				}
			})
		}
	}
}

// The acquiring request of a hold may have been sent twice. The first may land after the hold was
// released, and is cleaned up, too.
func TestPromise05_DuplicateLandsAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.First(locktest.OpAcquire, locktest.Fault{Late: 10 * time.Second}))
		h := locktest.MustLock(t, c, "job")
		locktest.Release(t, h)
		time.Sleep(19 * time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("a duplicate of the acquire keeps the lock after its release")
		}
	})
}
