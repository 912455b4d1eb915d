package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// A grant whose reply comes after the lease's own loss time makes no hold, and does not keep the
// lock taken.
func TestLateGrantMakesNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.First(locktest.OpAcquire,
			locktest.Fault{Delay: 25 * time.Second, IgnoreContext: true})) // TTL less grace
		if h, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("TryLock: %v, %v", h, err)
		}
		synctest.Wait()
		if locktest.IsHeld(t, store, "job") {
			t.Error("not cleaned up")
		}
	})
}

// A waiter continues after a late grant, and its next request has another ID: the first lease
// may have ended by now, and an ID that was granted once might get its old token again.
func TestIDOfALateGrantIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		var ids []holdfast.Lease
		c := locktest.FaultyClient(t, under, func(op string, n int, l holdfast.Lease) locktest.Fault {
			if op != locktest.OpAcquire {
				return locktest.Fault{}
			}
			ids = append(ids, l)
			if n == 1 {
				return locktest.Fault{Delay: 26 * time.Second, IgnoreContext: true}
			}
			return locktest.Fault{}
		})
		h := locktest.MustLock(t, c, "job")
		if len(ids) < 2 || slices.ContainsFunc(ids[1:], func(l holdfast.Lease) bool { return l.ID == ids[0].ID }) {
			t.Errorf("of %d requests, others have the ID of the first", len(ids))
		}
		time.Sleep(time.Minute)
		if h.Err() != nil {
			t.Errorf("the cleanup of the first request released the second: %v", h.Err())
		}
	})
}

// After a request that ended with its caller's context, no other slot is tried.
func TestCanceledCallerTriesNoOtherSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(
			ctx context.Context, _ driver.Request,
		) (holdfast.Lease, error) {
			requests++
			<-ctx.Done()
			return holdfast.Lease{}, context.Cause(ctx)
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&holdfast.HeldError{Record: holdfast.Record{Name: "another"}}) })
		if _, err := c.TryLock(ctx, "pool", holdfast.WithSlots(3)); err == nil || requests != 1 {
			t.Errorf("%d requests: %v", requests, err)
		}
	})
}

// A waiter's own request that is applied late looks like another holder to reads. The waiter
// sends the request again, and so gets the lock.
func TestOwnLateRequestIsNotAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		time.AfterFunc(5*time.Second, func() { _ = h.Release(t.Context()) })
		c := locktest.FaultyClient(t, store.Locker(),
			locktest.First(locktest.OpAcquire, locktest.Fault{Late: 6 * time.Second}), holdfast.WithPollInterval(10*time.Second))
		start := time.Now()
		locktest.MustLock(t, c, "job")
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("granted after %v", d)
		}
	})
}

// A request whose reply was lost is granted, and its lease is then broken. The backend refuses
// its ID from then on, which does not keep its own waiter from the lock.
func TestOwnBrokenLeaseDoesNotKeepItsWaiter(t *testing.T) {
	ways := map[string]func(c *holdfast.Client) error{
		"Lock": func(c *holdfast.Client) error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
			defer cancel()
			_, err := c.Lock(ctx, "job")
			return err
		},
		"LeaseManager": func(c *holdfast.Client) error {
			m, err := leases.New(c)
			if err != nil {
				return err
			}
			if err := m.Add("job"); err != nil {
				return err
			}
			for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
				if len(m.Leases()) == 1 {
					return nil
				}
			}
			return errors.New("not acquired")
		},
	}
	for name, wait := range ways {
		for _, steps := range []time.Duration{0, 24 * time.Hour} {
			for _, noBatchReads := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					var ahead atomic.Int64
					ahead.Store(int64(steps))
					store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
					breaker := store.Locker()
					f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
						if op != locktest.OpAcquire || n > 1 {
							return locktest.Fault{}
						}
						time.AfterFunc(time.Millisecond, func() {
							if err := breaker.Break(context.Background(), "job", driver.BreakAnybody()); err != nil {
								t.Error(err)
							}
							ahead.Store(0)
						})
						return locktest.Fault{Lose: locktest.ErrInjected}
					})
					f.NoBatchReads = noBatchReads
					c := locktest.NewClient(t, f, holdfast.WithTTL(20*time.Second))
					start := time.Now()
					err := wait(c)
					if took := time.Since(start); err != nil || took > 30*time.Second {
						t.Errorf("%s, clock steps back by %v, no batch reads %v: after %v: %v", name, steps, noBatchReads, took, err)
					}
					if n := f.Count(locktest.OpAcquire); n > 12 {
						t.Errorf("%s, clock steps back by %v, no batch reads %v: %d requests", name, steps, noBatchReads, n)
					}
				})
			}
		}
	}
}

// A holder that had to wait expects that others wait, too, and tells the driver so when it releases.
func TestHolderThatWaitedExpectsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var contended []bool
		client := func() *holdfast.Client {
			f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, lease holdfast.Lease) locktest.Fault {
				if op == locktest.OpRelease {
					contended = append(contended, lease.Contended)
				}
				return locktest.Fault{}
			})
			return locktest.NewClient(t, f)
		}
		first, second := locktest.MustLock(t, client(), "job"), client()
		time.AfterFunc(time.Second, func() { _ = first.Release(context.Background()) })
		if err := locktest.MustLock(t, second, "job").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []bool{false, true}; !slices.Equal(contended, want) {
			t.Errorf("contended: %v, want %v", contended, want)
		}
	})
}

// Who keeps the requests of a waiter from an answer is in its error, also if the last of them could not ask.
func TestWaiterSaysWhoBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := []string{"process 7 has locked its row", "process 8 has locked its row", ""}
		f := locktest.NewFaulty(t, memory.New(), func(op string, n int, l driver.Lease) (fault locktest.Fault) {
			if op == locktest.OpAcquire {
				record := driver.Record{Name: l.Name, State: driver.StateHeld, Blocked: blocked[min(n, len(blocked))-1]}
				fault.Refuse = &driver.OpError{Op: op, Backend: "memory", Name: l.Name, Err: &driver.HeldError{Record: record}}
			}
			return fault
		})
		c := locktest.NewClient(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); err == nil || !strings.Contains(err.Error(), "process 8") || f.Total() < 4 {
			t.Errorf("after %d calls: %v", f.Total(), err)
		}
	})
}
