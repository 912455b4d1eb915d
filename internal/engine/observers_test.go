package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// An observer that ends its goroutine, as t.FailNow does, is notified of later events all the same, also during Shutdown, which
// lets nothing begin any more while events still wait.
func TestObserverMayEndItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(func(holdfast.Event) {
			time.Sleep(time.Second)
			n.Add(1)
			runtime.Goexit()
		}))
		for range 5 {
			_ = locktest.MustLock(t, c, "job").Release(t.Context())
		}
		time.Sleep(time.Minute)
		if n := n.Load(); n != 10 {
			t.Errorf("the observer was notified of %d events of 10", n)
		}
		locktest.MustLock(t, c, "one")
		locktest.MustLock(t, c, "two")
		locktest.ShutDown(t, c) // it releases both locks
		if n := n.Load(); n != 14 {
			t.Errorf("the observer was notified of %d events of 14", n)
		}
	})
}

// A log handler that panics does not end the program, which is this test.
func TestPanickingLogHandler(t *testing.T) {
	c := locktest.NewClient(t, memory.New(), holdfast.WithLogger(slog.New(panicking{slog.DiscardHandler})))
	locktest.MustLock(t, c, "job")
	locktest.ShutDown(t, c)
}

// A holder whose owner the backend does not name for a moment is not reported again.
func TestHolderIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		n := 0
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(
			_ context.Context, req driver.Request,
		) (holdfast.Lease, error) {
			n++
			rec := holdfast.Record{Name: req.Name, State: driver.StateHeld}
			if n%2 == 1 {
				rec.Owner, rec.Token = "web-3", 7
			}
			return holdfast.Lease{}, &holdfast.HeldError{Record: rec}
		}}, holdfast.WithObserver(seen.Observe), holdfast.WithPollInterval(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		synctest.Wait()
		if n := seen.Count(holdfast.EventHolderSeen); n != 1 {
			t.Errorf("one holder was reported %d times", n)
		}
	})
}

func TestObserversDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, missed locktest.Events
		gate := make(chan struct{})
		slow := func(e holdfast.Event) { <-gate; missed.Observe(e) }
		c := locktest.NewClient(t, memory.NewStore().Locker(), holdfast.WithObserver(slow),
			holdfast.WithObserver(func(holdfast.Event) { panic("observer") }), holdfast.WithObserver(seen.Observe))
		h := locktest.MustLock(t, c, "job")
		for range 1000 {
			if err := locktest.MustLock(t, c, "other").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for the fast observer
		}
		time.Sleep(time.Hour)
		if h.Err() != nil {
			t.Errorf("lost: %v", h.Err())
		}
		if n := len(seen.Types()); n != 2001 {
			t.Errorf("an observer beside a slow and a panicking one saw %d events of 2001", n)
		}
		close(gate)
		synctest.Wait()
		_ = locktest.MustLock(t, c, "other").Release(t.Context())
		synctest.Wait()
		notified, dropped := 0, 0
		for _, e := range missed.List {
			notified, dropped = notified+1, dropped+e.Dropped
		}
		if notified+dropped != 2003 || dropped < 900 {
			t.Errorf("the slow observer saw %d events and was notified that it missed %d of 2003", notified, dropped)
		}
	})
}

// For each name of a LeaseManager 4 more events wait for a slow observer. Each further event counts once, with the next one that fits,
// and a hook is notified of it.
func TestEventsThatWaitForAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		gate := make(chan struct{})
		c, hook := newHooked(t, memory.New(), holdfast.WithObserver(func(e holdfast.Event) { <-gate; seen.Observe(e) }))
		m, names := locktest.NewManager(t, c), locktest.Names("name-", 25)
		for range 2 { // names that were added before add nothing
			locktest.MustAdd(t, m, names...)
		}
		time.Sleep(time.Second)
		change := func() {
			_ = locktest.MustLock(t, c, "job").Release(t.Context())
			synctest.Wait()
		}
		emitted := len(names) // all were acquired
		for ; emitted < 1200; emitted += 2 {
			change()
		}
		close(gate)
		synctest.Wait()
		const waited = 1 + 1024 + 4*25 // one is being observed
		if n := len(seen.Types()); n != waited {
			t.Errorf("the observer was notified of %d events, want %d", n, waited)
		}
		change()
		var dropped []int
		for _, e := range seen.List {
			dropped = append(dropped, e.Dropped)
		}
		if n := len(dropped); n != waited+2 || dropped[waited] != emitted-waited || slices.Max(dropped[:waited]) != 0 || dropped[n-1] != 0 {
			t.Errorf("%d events, of which these were dropped before the last ones: %v, want %d", n, dropped[n-3:], emitted-waited)
		}
		lines := hook.Take(false)
		if n := len(lines) - len(slices.DeleteFunc(lines, func(l string) bool { return l == "dropped" })); n != emitted-waited {
			t.Errorf("the hook was notified of %d dropped events, want %d", n, emitted-waited)
		}
	})
}

// Shutdown does not wait for an observer for longer than its context.
func TestShutdownDoesNotWaitForObserversForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := locktest.NewClient(t, memory.NewStore().Locker(), holdfast.WithObserver(func(holdfast.Event) { <-gate }))
		_ = locktest.MustLock(t, c, "job").Release(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		close(gate)
	})
}

// panicking is a log handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("handler") }
