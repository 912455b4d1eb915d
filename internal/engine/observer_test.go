package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// An observer that ends its goroutine, as t.FailNow does, must not silence itself and
// fill its backlog for ever.
func TestCorner_ObserverCallsGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(func(holdfast.Event) {
			if n++; n == 1 {
				runtime.Goexit()
			}
		}))
		for range 5 {
			_ = locktest.MustLock(t, c, "job").Release(t.Context())
		}
		synctest.Wait()
		if n != 10 {
			t.Errorf("the observer was told of %d events of 10", n)
		}
	})
}

// A log handler that panics is an observer that panics: it must not end the program.
func TestCorner_PanickingLogHandler(t *testing.T) {
	const mark = "HOLDFAST_TEST_PANIC"
	if os.Getenv(mark) != "" {
		c, err := holdfast.New(memory.New(), holdfast.WithLogger(slog.New(panicking{slog.DiscardHandler})))
		if err != nil {
			t.Fatal(err)
		}
		locktest.MustLock(t, c, "job")
		_ = c.Shutdown(t.Context())
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorner_PanickingLogHandler$")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the program ended: %v\n%.300s", err, out)
	}
}

// A loss is told before the acquisition that follows it in the same process.
func TestCorner_EventsInOrder(t *testing.T) {
	store := memory.NewStore()
	admin := store.Locker()
	for round := range 300 {
		var seen locktest.Events
		c, err := holdfast.New(locktest.NewFaulty(t, store.Locker(), nil), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
			holdfast.WithObserver(seen.Observe), holdfast.WithTTL(30*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		first, err := c.Lock(context.Background(), "job")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := c.Lock(context.Background(), "job")
			next <- err
		}()
		if err := admin.BreakNow(context.Background(), "job"); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		if err := c.Shutdown(context.Background()); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Fatal(err)
		}
		_ = first
		held := 0
		for _, e := range seen.Types() {
			switch e {
			case holdfast.EventAcquired:
				if held++; held > 1 {
					t.Fatalf("round %d: %v", round, seen.Types())
				}
			case holdfast.EventLost, holdfast.EventReleased:
				held--
			}
		}
	}
}

// Do's documentation: "if the lock was lost before fn returned, the result matches
// ErrLost too, even if fn returned nil". The caller's cancellation comes first here.
func TestCorner_LossAfterCancellationIsTold(t *testing.T) {
	work := func(ctx context.Context) error { time.Sleep(time.Minute); return nil }
	t.Run("Do, caller canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), locktest.Refuse(locktest.OpRenew)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			go func() { // the other process has it from 30 s on
				time.Sleep(2 * time.Second)
				_ = locktest.NewClient(t, store.Locker()).Do(context.Background(), "job", func(context.Context) error { return nil })
			}()
			if err := c.Do(ctx, "job", work); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("lost after 25 s, fn returned after 60 s: Do returned %v", err)
			}
		})
	})
	t.Run("Do, Shutdown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, locktest.NewFaulty(t, memory.NewStore().Locker(), locktest.Refuse(locktest.OpRenew)))
			time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
			if err := c.Do(t.Context(), "job", work); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do returned %v", err)
			}
		})
	})
	t.Run("RunTaskOnLeader, StepDown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, locktest.NewFaulty(t, memory.NewStore().Locker(), locktest.Refuse(locktest.OpRenew)))
			r := locktest.NewRunner(t, c)
			time.AfterFunc(time.Second, func() { _ = r.StepDown(context.Background()) })
			ran, err := r.RunTaskOnLeader(t.Context(), work)
			if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrSteppedDown) {
				t.Errorf("the lock was not kept until task had returned: %v, %v", ran, err)
			}
		})
	})
}

// What Do returns and what observers are told must be one story.
func TestCorner_LossNoticedByTheClockIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		var seen locktest.Events
		start := time.Now()
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(seen.Observe),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		err := c.Do(t.Context(), "job", func(context.Context) error {
			suspended.Store(int64(time.Minute)) // the machine sleeps for a minute, and the work ends before the keeper looks
			return nil
		})
		synctest.Wait()
		if !errors.Is(err, holdfast.ErrLost) || seen.Count(holdfast.EventLost) != 1 || seen.Count(holdfast.EventReleased) != 0 {
			t.Errorf("Do returned %v, the observer was told %v", err, seen.Types())
		}
	})
}

// "An owner that a backend cannot tell for a moment is not another holder."
func TestCorner_HolderSeenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		n := 0
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
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
			t.Errorf("one holder was told of %d times", n)
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
			synctest.Wait() // for the quick observer
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
		told, dropped := 0, 0
		for _, e := range missed.List {
			told, dropped = told+1, dropped+e.Dropped
		}
		if told+dropped != 2003 || dropped < 900 {
			t.Errorf("the slow observer saw %d events and was told that it missed %d of 2003", told, dropped)
		}
	})
}

// An observer that never returns does not keep Shutdown beyond its context.
func TestShutdownDoesNotWaitForObserversForEver(t *testing.T) {
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
