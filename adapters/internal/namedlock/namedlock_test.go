package namedlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func newSet(t *testing.T, c *holdfast.Client, minHold time.Duration) *namedlock.Set {
	t.Helper()
	s, err := namedlock.New(c, minHold)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// isFree reports whether the lock has no holder.
func isFree(t *testing.T, store *memory.Store, name string) bool {
	t.Helper()
	l := store.Locker()
	defer l.Close(context.Background())
	r, err := l.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r.State == driver.StateFree
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		own := newSet(t, locktest.NewClient(t, store.Locker()), time.Minute)
		other := newSet(t, locktest.NewClient(t, store.Locker()), time.Minute)
		if _, err := own.TryLock(ctx, "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		begin := time.Now()
		if err := own.Unlock(ctx, "job"); err != nil || time.Since(begin) > 0 {
			t.Errorf("Unlock within the minimum hold: %v, after %v", err, time.Since(begin))
		}
		for range 49 {
			time.Sleep(time.Second)
			for whose, set := range map[string]*namedlock.Set{"own": own, "another": other} {
				if _, err := set.TryLock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
					t.Fatalf("%s process within the minimum hold: %v", whose, err)
				}
			}
		}
		time.Sleep(1100 * time.Millisecond)
		if _, err := other.TryLock(ctx, "job"); err != nil {
			t.Errorf("after the minimum hold: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := other.Unlock(ctx, "job"); err != nil || !isFree(t, store, "job") {
			t.Errorf("Unlock after the minimum hold: %v; the lock is still held", err)
		}
	})
}

func TestUnlockWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		set := newSet(t, locktest.NewClient(t, store.Locker()), 0)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := set.Lock(ctx, "job"); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour) // the hold does not end with the context it was taken with
		if hold, ok := set.Context("job"); !ok || hold.Err() != nil {
			t.Errorf("the hold ended with the context that it was taken with: %v", hold)
		}
		if err := set.Unlock(ctx, "job"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !isFree(t, store, "job") {
			t.Error("the lock is still held")
		}
	})
}

func TestShutdownWaitsForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		client := locktest.NewClient(t, store.Locker())
		set := newSet(t, client, time.Hour)
		if _, err := set.Lock(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		hold, _ := set.Context("job")
		down := make(chan error, 1)
		go func() { down <- client.Shutdown(context.Background()) }()
		synctest.Wait()
		if !errors.Is(context.Cause(hold), holdfast.ErrClosed) {
			t.Errorf("the hold's context ended with %v", context.Cause(hold))
		}
		time.Sleep(10 * time.Minute) // the work takes its time to stop
		if isFree(t, store, "job") || len(down) > 0 {
			t.Error("Shutdown released the lock before the work was over")
		}
		if err := set.Unlock(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		if err := <-down; err != nil || !isFree(t, store, "job") {
			t.Errorf("Shutdown: %v; or it waited for the minimum hold", err)
		}
	})
}

func TestShutdownEndsTheMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		client := locktest.NewClient(t, store.Locker())
		set := newSet(t, client, time.Hour)
		held, err := set.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := client.Shutdown(context.Background()); err != nil || time.Since(begin) > time.Second || !isFree(t, store, "job") {
			t.Errorf("Shutdown: %v after %v, free: %t", err, time.Since(begin), isFree(t, store, "job"))
		}
	})
}

// A name whose lease was lost is taken again in this process only after it was unlocked, so that
// the first Unlock does not release the lock of the second caller.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		set := newSet(t, locktest.NewClient(t, store.Locker()), time.Hour)
		if _, err := set.Lock(ctx, "job"); err != nil {
			t.Fatal(err)
		}
		hold, _ := set.Context("job")
		store.Remove("job")
		<-hold.Done()
		if !errors.Is(context.Cause(hold), holdfast.ErrLost) {
			t.Errorf("the context ended with %v", context.Cause(hold))
		}
		second := make(chan error, 1)
		go func() {
			_, err := set.Lock(ctx, "job")
			second <- err
		}()
		if _, err := set.TryLock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock while the work of a lost lock goes on: %v", err)
		}
		time.Sleep(time.Minute)
		if len(second) > 0 {
			t.Error("the name was taken while the work of its lost lock went on")
		}
		if err := set.Unlock(ctx, "job"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Unlock of a lost lock: %v", err)
		}
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		if isFree(t, store, "job") {
			t.Error("the first Unlock released the second caller's lock")
		}
		if err := set.Unlock(ctx, "job"); err != nil {
			t.Error(err)
		}
	})
}

// A hold is unlocked once. A second Unlock leaves the next hold of the name alone, which in this
// process and elsewhere stays held.
func TestSecondUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		set := newSet(t, locktest.NewClient(t, store.Locker()), 0)
		first, err := set.Lock(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Unlock(ctx); err != nil {
			t.Error(err)
		}
		second, err := set.Lock(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Unlock(ctx); !errors.Is(err, driver.ErrInvalid) || isFree(t, store, "job") || second.Context().Err() != nil {
			t.Errorf("second Unlock of the first hold: %v; free: %t; the second hold: %v", err, isFree(t, store, "job"), second.Context().Err())
		}
		if err := second.Unlock(ctx); err != nil || !isFree(t, store, "job") {
			t.Errorf("Unlock of the second hold: %v; free: %t", err, isFree(t, store, "job"))
		}
	})
}

// The same if the next hold waited already, so that both share what the Set knows of the name.
func TestSecondUnlockAfterAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		set := newSet(t, locktest.NewClient(t, store.Locker()), 0)
		first, err := set.Lock(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *namedlock.Held)
		go func() {
			second, err := set.Lock(ctx, "job")
			if err != nil {
				t.Error(err)
			}
			granted <- second
		}()
		synctest.Wait()
		if err := first.Unlock(ctx); err != nil {
			t.Error(err)
		}
		second := <-granted
		if err := first.Unlock(ctx); !errors.Is(err, driver.ErrInvalid) || isFree(t, store, "job") {
			t.Errorf("second Unlock of the first hold: %v; free: %t", err, isFree(t, store, "job"))
		}
		if err := second.Unlock(ctx); err != nil || !isFree(t, store, "job") {
			t.Errorf("Unlock of the second hold: %v; free: %t", err, isFree(t, store, "job"))
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		own, other := newSet(t, locktest.NewClient(t, store.Locker()), 0), newSet(t, locktest.NewClient(t, store.Locker()), 0)
		if _, err := own.Lock(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		for whose, set := range map[string]*namedlock.Set{"own": own, "another": other} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := set.Lock(ctx, "job")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s process: %v", whose, err)
			}
		}
		if err := other.Unlock(t.Context(), "job"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Unlock of another's lock: %v", err)
		}
		if err := own.Unlock(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		if err := own.Unlock(t.Context(), "job"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("second Unlock: %v", err)
		}
	})
}

func TestContextEndsDuringTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		set := newSet(t, locktest.NewClient(t, locktest.Ending{Locker: store.Locker(), End: cancel}), time.Hour)
		if _, err := set.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		time.Sleep(time.Minute) // a lock in doubt is cleaned up
		if !isFree(t, store, "job") {
			t.Error("the lock is still held")
		}
	})
}

// Each lock and unlock of many goroutines in two processes is about one name, which one of them
// has at a time.
func TestManyCallers(t *testing.T) {
	store := memory.NewStore()
	var callers sync.WaitGroup
	var holders [3]atomic.Int32
	for range 2 {
		set := newSet(t, locktest.NewClient(t, store.Locker()), 0)
		for i := range 12 {
			callers.Go(func() {
				name := fmt.Sprint("job-", i%len(holders))
				for range 5 {
					if _, err := set.Lock(t.Context(), name); err != nil {
						t.Error(err)
						return
					}
					if n := holders[i%len(holders)].Add(1); n > 1 {
						t.Errorf("%s has %d holders", name, n)
					}
					holders[i%len(holders)].Add(-1)
					if err := set.Unlock(t.Context(), name); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	callers.Wait()
}

func TestJoin(t *testing.T) {
	type key string
	hold, lose := context.WithCancelCause(context.WithValue(t.Context(), key("hold"), 1))
	caller, stop := context.WithTimeout(context.WithValue(t.Context(), key("caller"), 2), time.Hour)
	defer stop()
	deadline, _ := caller.Deadline()
	joined, end := namedlock.Join(hold, caller)
	defer end()
	if joined.Value(key("hold")) != 1 || joined.Value(key("caller")) != 2 || joined.Value(key("none")) != nil {
		t.Error("the joined context lacks a value")
	}
	if got, ok := joined.Deadline(); !ok || !got.Equal(deadline) {
		t.Errorf("deadline %v, %t", got, ok)
	}
	child, cancel := context.WithCancel(joined)
	defer cancel()
	lose(holdfast.ErrLost)
	<-child.Done()
	if !errors.Is(context.Cause(joined), holdfast.ErrLost) {
		t.Errorf("ended with %v", context.Cause(joined))
	}
	joined, end = namedlock.Join(t.Context(), caller)
	defer end()
	stop()
	<-joined.Done()
	if !errors.Is(context.Cause(joined), context.Canceled) {
		t.Errorf("ended with %v", context.Cause(joined))
	}
}

func TestNilArguments(t *testing.T) {
	if _, err := namedlock.New(nil, 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nil client: %v", err)
	}
	if _, err := namedlock.New(locktest.NewClient(t, memory.New()), 0, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nil option: %v", err)
	}
}

// The work would be done several times.
func TestLocksOfSeveralHoldersAreRefused(t *testing.T) {
	for want, o := range map[string]holdfast.Option{
		"holdfast: Mode shared is invalid: must be exclusive for the lock of an adapter": holdfast.WithShared(),
		"holdfast: Slots 3 is invalid: must be 1 for the lock of an adapter":             holdfast.WithSlots(3),
	} {
		_, err := namedlock.New(locktest.NewClient(t, memory.New()), 0, o)
		_, byDefault := namedlock.New(locktest.NewClient(t, memory.New(), o), 0)
		if fmt.Sprint(err) != want || fmt.Sprint(byDefault) != want {
			t.Errorf("as an option: %v\nas a default: %v\nwant %s", err, byDefault, want)
		}
	}
	if _, err := namedlock.New(locktest.NewClient(t, memory.New(), holdfast.WithSlots(3)), 0, holdfast.WithSlots(1)); err != nil {
		t.Errorf("one slot, where the default is three: %v", err)
	}
}
