package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestWaitingForAThousandNamesCostsAFewCalls(t *testing.T) {
	for _, tt := range []struct {
		name    string
		names   int
		watcher bool
		poll    time.Duration
		most    int // calls a minute
	}{
		{"woken by a Watcher", 1000, true, 15 * time.Second, 5},
		{"polling every 5 s", 300, false, 5 * time.Second, 15},
		{"polling once an hour", 300, true, time.Hour, 5}, // except at the holder's expiry
	} {
		names := tt.names
		locktest.Bubble(t, tt.name, func(t *testing.T) {
			c := locktest.NewWaiters(t, names, func(f *locktest.Faulty) { f.Watcher = tt.watcher }, holdfast.WithPollInterval(tt.poll))
			time.Sleep(time.Minute)
			// One request for each name, then reads. Each name's watch comes into effect at a
			// time of its own, and so has a read of its own then.
			if n := c.Calls.Count(locktest.OpAcquire); n != names {
				t.Errorf("%d requests at first", n)
			}
			before := c.Calls.Total()
			const minutes = 3
			time.Sleep(minutes * time.Minute)
			calls := c.Calls.Total() - before
			t.Logf("%.1f calls a minute", float64(calls)/minutes)
			if calls > tt.most*minutes || calls < minutes {
				t.Errorf("%d calls in %d minutes in which nothing happened", calls, minutes)
			}
			if n := c.Calls.Count(locktest.OpAcquire); n != names {
				t.Errorf("%d requests although reads are possible", n-names)
			}
			c.CheckTakeover()
			if n := c.Calls.Count(locktest.OpAcquire) - names; n > names+names/10 {
				t.Errorf("%d requests for %d takeovers", n, names)
			}
		})
	}
}

// A Watcher that lost events wakes every waiter. One batch read shows most of them that nothing
// changed, and the others take their locks.
func TestFloodOfWakeUpsSharesReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 500
		var gap *locktest.LossyWatcher
		c := locktest.NewWaiters(t, names, func(f *locktest.Faulty) {
			gap = locktest.NewLossyWatcher(f.Locker, false)
			f.Locker = gap
			f.Faults = locktest.Each(locktest.OpInspect, locktest.Fault{Delay: 5 * time.Millisecond})
		})
		time.Sleep(time.Minute)
		before, reads := c.Calls.Count(locktest.OpAcquire), c.Calls.Count(locktest.OpInspect)
		gap.Loses.Store(true)
		for _, name := range []string{"job-3", "job-300"} {
			_ = c.Holds[name].Release(t.Context())
		}
		synctest.Wait()
		if len(c.Granted) != 0 {
			t.Fatal("woken by a lost event")
		}
		gap.Loses.Store(false)
		gap.WakeAll()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if n := c.Calls.Count(locktest.OpAcquire) - before; n > 50 || len(c.Granted) != 2 {
			t.Errorf("%d requests, %d granted", n, len(c.Granted))
		}
		if n := c.Calls.Count(locktest.OpInspect) - reads; n > 4 {
			t.Errorf("%d reads", n)
		}
		c.CheckTakeover("job-3", "job-300")
	})
}

// If batch reads fail, waiters send requests instead, and take over in time. That is so even if
// the read never returns.
func TestWaitersSendRequestsWhenReadsFail(t *testing.T) {
	locktest.Rows(t, map[string]locktest.Fault{
		"refused":             {Refuse: locktest.ErrInjected},
		"hung":                {Hang: true},
		"ignores its context": {Delay: time.Hour, IgnoreContext: true},
	}, func(t *testing.T, ft locktest.Fault) {
		c := locktest.NewWaiters(t, 20, func(f *locktest.Faulty) {
			f.Faults = locktest.Each(locktest.OpInspect, ft)
		})
		before := c.Calls.Count(locktest.OpAcquire)
		time.Sleep(10 * time.Minute)
		if n := c.Calls.Count(locktest.OpAcquire) - before; n < 20*10*60/25 || n > 20*10*60/12 {
			t.Errorf("%d requests in 10 minutes at a poll interval of 15 s", n)
		}
		c.CheckTakeover()
	})
}

func TestReadsEndWithTheirWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
		f := locktest.NewFaulty(t, store.Locker(), locktest.Each(locktest.OpInspect, locktest.Fault{Delay: time.Second}))
		c := locktest.NewClient(t, f)
		for _, wait := range []time.Duration{time.Millisecond, 5500 * time.Millisecond, time.Minute} { // before, during and after reads
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := c.Lock(ctx, "job")
			var held *holdfast.HeldError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Record.Owner != "web-3" {
				t.Errorf("err = %v", err)
			}
			cancel()
			time.Sleep(time.Second)
			before := f.Total()
			time.Sleep(time.Minute)
			if f.Total() != before {
				t.Error("there are reads although nobody waits")
			}
		}
	})
}

func TestShutdownEndsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewWaiters(t, 50, func(f *locktest.Faulty) {
			f.Watcher = false
			f.Faults = locktest.Each(locktest.OpInspect, locktest.Fault{Hang: true})
		}, holdfast.WithPollInterval(time.Second))
		time.Sleep(time.Second) // a read is under way
		start := time.Now()
		if err := c.Client.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("Shutdown took %v: %v", time.Since(start), err)
		}
		c.Wg.Wait()
		if len(c.Granted) != 0 {
			t.Errorf("%d were granted", len(c.Granted))
		}
	})
}

// A holder that a read shows is reported, and named by errors, as one that a request shows.
func TestReadsReportTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a, b := locktest.NewClient(t, store.Locker(), holdfast.WithOwner("a")), locktest.NewClient(t, store.Locker(), holdfast.WithOwner("b"))
		h := locktest.MustLock(t, a, "job")
		var seen locktest.Events
		f := locktest.NewFaulty(t, store.Locker(), nil)
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(30*time.Second, func() {
			_ = h.Release(t.Context())
			locktest.MustTryLock(t, b, "job")
		})
		behind := make(chan error)
		go func() {
			time.Sleep(time.Millisecond)
			_, err := c.Lock(ctx, "job")
			behind <- err
		}()
		_, err := c.Lock(ctx, "job")
		for _, err := range []error{err, <-behind} {
			var held *holdfast.HeldError
			if !errors.As(err, &held) || held.Record.Owner != "b" {
				t.Errorf("err = %v", err)
			}
		}
		synctest.Wait()
		if n := seen.Count(holdfast.EventHolderSeen); n != 2 || seen.List[1].Owner != "b" {
			t.Errorf("%d events: %v", n, seen.List)
		}
		if n := f.Count(locktest.OpAcquire); n > 3 {
			t.Errorf("%d requests", n)
		}
	})
}
