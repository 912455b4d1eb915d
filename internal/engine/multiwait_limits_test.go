package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A panic of the driver while the patience ends goes on at once. A lock that is granted at the same moment is released.
func TestGrantDuringAPanicIsReleased(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
			panicked := make(chan struct{})
			var asked, once atomic.Int32
			c := locktest.NewClient(t, driver.Intercept(locktest.NewFaulty(t, store.Locker(), nil),
				func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					switch {
					case call.Method == driver.MethodRelease && call.Lease.Name == "a" && once.Add(1) == 2:
						close(panicked) // the first release comes before the queue
						panic("broken driver")
					case granted && call.Method == driver.MethodTryAcquire && call.Request.Name == "b" && asked.Add(1) == 2:
						<-panicked
						_ = leader.Release(t.Context())
						ctx = context.WithoutCancel(ctx)
					}
					return next(ctx, call)
				}))
			start := time.Now()
			func() {
				defer func() {
					if recover() == nil || time.Since(start) > 2*time.Second {
						t.Errorf("no panic, or late: %v", time.Since(start))
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _ = c.LockAll(ctx, []string{"a", "b"})
			}()
			_ = leader.Release(t.Context())
			time.Sleep(time.Minute)
			for _, name := range []string{"a", "b", engine.QueueName} {
				if locktest.IsHeld(t, store, name) {
					t.Errorf("%s is held", name)
				}
			}
			locktest.ShutDown(t, c)
		})
	}
}

// A lock that was lost during a pause of the process, which only the clock shows, is not among those of a MultiHold.
func TestPauseWhileSeveralNamesAreAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var now, pauses atomic.Int64
		pause := func(d time.Duration) { now.Add(int64(d)) }
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodRenew || call.Method == driver.MethodRenewBatch {
				<-ctx.Done()
			}
			answer := next(ctx, call)
			if call.Method == driver.MethodTryAcquire {
				switch pauses.Add(1) {
				case 1:
					pause(24 * time.Second)
				case 2:
					pause(2 * time.Second) // 26 s after the first request, 1 s after its loss
				}
			}
			return answer
		}), holdfast.WithElapsed(func() time.Duration { return time.Duration(now.Load()) }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m, err := c.LockAll(ctx, []string{"a", "b"})
		if err != nil || m.Err() != nil {
			t.Fatalf("%v, %v", err, m)
		}
		_ = m.Release(t.Context())
	})
}

// A holder of the queue lock whose token is unknown for a moment, as on Azure Blob Storage just after a grant, does not
// count as one that keeps the lock too long.
func TestQueueLockWithAnUnknownHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		others := store.Locker()
		held, err := others.TryAcquire(t.Context(), driver.Request{Name: engine.QueueName, ID: driver.NewLeaseID(engine.QueueName), Owner: "x",
			TTL: 12 * time.Hour, Waiter: driver.NewWaiterID()})
		if err != nil {
			t.Fatal(err)
		}
		leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
		var reads atomic.Int32
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			answer := next(ctx, call)
			if call.Method == driver.MethodInspect && call.Name == engine.QueueName && reads.Add(1) == 1 {
				answer.Record.Token, answer.Record.Owner = 0, ""
			}
			return answer
		}), holdfast.WithTTL(time.Minute), holdfast.WithPollInterval(time.Second))
		time.AfterFunc(time.Second, func() { _ = leader.Release(context.Background()) })
		start := time.Now()
		time.AfterFunc(150*time.Second, func() { // after the first read, and before the second
			if err := others.Release(context.Background(), held); err != nil {
				t.Error(err)
			}
		})
		m, err := c.LockAll(t.Context(), []string{"a", "b"})
		if err != nil || time.Since(start) < 150*time.Second {
			t.Errorf("%v after %v: it did not wait for the queue lock", err, time.Since(start))
		}
		locktest.Release(t, m)
	})
}

// The queue lock keeps nobody waiting forever: not if one holder keeps it for longer than callers do, and not if it cannot be
// acquired any more. Its lease is short.
func TestQueueLockOfSeveralNamesIsWaitedForWithinLimits(t *testing.T) {
	for _, denied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			if _, err := store.Locker().TryAcquire(t.Context(), driver.Request{Name: engine.QueueName, // by a program of another kind
				ID: driver.NewLeaseID(engine.QueueName), Owner: "x", TTL: 12 * time.Hour, Waiter: driver.NewWaiterID()}); err != nil {
				t.Fatal(err)
			}
			leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
			var asked atomic.Int32
			c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method == driver.MethodTryAcquire && call.Request.Name == engine.QueueName {
					if call.Request.TTL > 15*time.Second {
						t.Errorf("the TTL is %v", call.Request.TTL)
					}
					if asked.Add(1) > 1 && denied {
						return driver.Answer{Err: driver.ErrDenied}
					}
				}
				return next(ctx, call)
			}), holdfast.WithTTL(time.Minute), holdfast.WithPollInterval(time.Second))
			time.AfterFunc(time.Second, func() { _ = leader.Release(context.Background()) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			limit := 5 * time.Minute
			if denied {
				limit = 10 * time.Second
			}
			start := time.Now()
			m, err := c.LockAll(ctx, []string{"a", "b"})
			if err != nil || time.Since(start) > limit {
				t.Fatalf("%v after %v", err, time.Since(start))
			}
			_ = m.Release(t.Context())
		})
	}
}

// A queue lock that goes from one caller to the next is waited for, however long that takes.
func TestBusyQueueLockOfSeveralNamesIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		b := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
		others := store.Locker()
		request := func(i int) driver.Request {
			return driver.Request{Name: engine.QueueName, ID: driver.NewLeaseID(fmt.Sprint(i)), Owner: "x", TTL: time.Minute,
				Waiter: driver.NewWaiterID()}
		}
		lease, err := others.TryAcquire(t.Context(), request(0))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan struct{})
		go func() {
			defer close(got)
			if err := locktest.NewClient(t, store.Locker()).DoAll(t.Context(), []string{"a", "b"}, locktest.EmptyTask); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		_ = b.Release(t.Context())
		for i := range 100 {
			time.Sleep(30 * time.Second)
			next := request(i + 1)
			r, err := others.Inspect(t.Context(), next.Name)
			if err != nil {
				t.Fatal(err)
			}
			next.Replace = r.Revision
			if lease, err = others.TryAcquire(t.Context(), next); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-got:
			t.Error("the caller did not wait for the queue lock")
		default:
		}
		_ = others.Release(t.Context(), lease)
		<-got
	})
}

// Names that are held for several TTLs, again and again, do not starve a caller that wants them together. If it loses the
// queue lock while it waits, that is no overrun.
func TestSeveralNamesThatAreHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := locktest.NewFaulty(t, store.Locker(),
			locktest.Named(locktest.OpRenew, engine.QueueName, locktest.Fault{Refuse: locktest.ErrInjected}))
		l.Watcher = true
		var lost atomic.Int32
		caller := locktest.NewClient(t, l, holdfast.WithObserver(func(e holdfast.Event) {
			switch e.Type {
			case holdfast.EventLost:
				lost.Add(1)
			case holdfast.EventOverrun:
				t.Errorf("%v", e)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c", "a", "b", "c"} {
			c := locktest.NewClient(t, store.Locker())
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Second)
				for ctx.Err() == nil {
					_ = c.Do(ctx, name, func(context.Context) error {
						time.Sleep(5 * time.Minute) // ten TTLs
						return nil
					})
				}
			})
		}
		time.Sleep(10 * time.Minute)
		start := time.Now()
		limited, stop := context.WithTimeout(ctx, 24*time.Hour)
		if err := caller.DoAll(limited, []string{"a", "b", "c"}, locktest.EmptyTask); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited > 4*time.Hour || lost.Load() == 0 {
			t.Errorf("waited for %v, and lost the queue lock %d times", waited, lost.Load())
		}
		stop()
		cancel()
		wg.Wait()
	})
}

// A call does not overtake the callers of its process that wait already, also if its names are free.
func TestSeveralNamesDoNotOvertakeOwnWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		others := store.Locker()
		queue, err := others.TryAcquire(t.Context(), driver.Request{Name: engine.QueueName, ID: driver.NewLeaseID("x"), Owner: "x",
			TTL: time.Minute, Waiter: driver.NewWaiterID()})
		if err != nil {
			t.Fatal(err)
		}
		b := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
		c := locktest.NewClient(t, store.Locker())
		var order []string
		var wg sync.WaitGroup
		for _, caller := range []string{"first", "second"} {
			wg.Go(func() {
				if err := c.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error {
					order = append(order, caller)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			_ = b.Release(t.Context())
		}
		_ = others.Release(t.Context(), queue)
		wg.Wait()
		if !slices.Equal(order, []string{"first", "second"}) {
			t.Errorf("they came in the order %v", order)
		}
	})
}

// The work does not wait until the queue lock is released, and requests that are granted at once take nothing from the patience.
func TestSeveralNamesOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "a")
		var acquired atomic.Int32
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			switch call.Method {
			case driver.MethodTryAcquire:
				if call.Request.Name == "a" {
					acquired.Add(1)
				}
				time.Sleep(600 * time.Millisecond)
			case driver.MethodRelease, driver.MethodReleaseBatch:
				time.Sleep(2 * time.Second)
			}
			return next(ctx, call)
		}))
		time.AfterFunc(1300*time.Millisecond, func() { _ = a.Release(t.Context()) })
		start := time.Now()
		if err := c.DoAll(t.Context(), []string{"a", "b", "c", "d", "e"}, func(context.Context) error {
			// a refusal, the queue lock, a refusal or a wait until 1.3 s, the five names
			if took := time.Since(start); took > 6*600*time.Millisecond+1300*time.Millisecond {
				t.Errorf("the work began after %v", took)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if n := acquired.Load(); n > 3 {
			t.Errorf("%d requests for a", n)
		}
	})
}

// After the first loss the other locks are still held. A wait for one of them within would deadlock, and fails at once.
func TestWaitWithinSeveralNamesAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.Named(locktest.OpRenew, "b", locktest.Fault{Refuse: driver.ErrLost}))
		_ = c.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			<-ctx.Done()
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			start := time.Now()
			if _, err := c.Lock(within, "a"); !errors.Is(err, holdfast.ErrHeld) || time.Since(start) > time.Second {
				t.Errorf("a: %v after %v", err, time.Since(start))
			}
			h, err := c.Lock(within, "b") // is lost, so it can be had
			if err != nil {
				t.Errorf("b: %v", err)
				return nil
			}
			return h.Release(within)
		})
	})
}
