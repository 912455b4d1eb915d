package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestInvalidArguments(t *testing.T) {
	client := locktest.NewClient(t, memory.New())
	type twoMethods interface {
		Lock
		Extend()
	}
	for what, err := range map[string]error{
		"nil client":       func() error { _, err := gocronlock.NewLocker[Lock](nil, time.Second); return err }(),
		"no minimum hold":  func() error { _, err := gocronlock.NewLocker[Lock](client, 0); return err }(),
		"nil option":       func() error { _, err := gocronlock.NewLocker[Lock](client, time.Second, nil); return err }(),
		"another Lock":     func() error { _, err := gocronlock.NewLocker[twoMethods](client, time.Second); return err }(),
		"elector's slots":  func() error { _, err := gocronlock.NewElector(client, "x", holdfast.WithSlots(2)); return err }(),
		"elector's client": func() error { _, err := gocronlock.NewElector(nil, "x"); return err }(),
		"elector's name":   func() error { _, err := gocronlock.NewElector(client, ""); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The lock of an earlier run does not end the next one's.
func TestSecondUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.NewStore(), t.Context()
		locker, err := gocronlock.NewLocker[Lock](locktest.NewClient(t, store.Locker()), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		run := func() Lock {
			lock, err := locker.Lock(ctx, "job")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // the minimum hold
			return lock
		}
		first := run()
		if err := first.Unlock(ctx); err != nil {
			t.Error(err)
		}
		second := run()
		if err := first.Unlock(ctx); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("second Unlock of the first run: %v", err)
		}
		other, err := gocronlock.NewLocker[Lock](locktest.NewClient(t, store.Locker()), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the job began elsewhere while it ran: %v", err)
		}
		if err := second.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// broken is a Locker of a backend that can fail.
type broken struct {
	holdfast.Locker
	fails *atomic.Pointer[error]
}

func (b broken) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if err := b.fails.Load(); err != nil {
		return holdfast.Lease{}, *err
	}
	return b.Locker.TryAcquire(ctx, req)
}

// Whatever the failure is, each one is reported, and the campaign goes on.
func TestElectorAnswersWhileTheBackendFails(t *testing.T) {
	for name, failure := range map[string]error{"transient": errors.New("no route to host"), "denied": driver.Denied(errors.New("read-only")),
		"invalid": driver.Invalid("index", "foreign", "ours")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fails atomic.Pointer[error]
				fails.Store(&failure)
				var events locktest.Events
				client := locktest.NewClient(t, broken{memory.New(), &fails}, holdfast.WithObserver(events.Observe))
				elector, err := gocronlock.NewElector(client, "scheduler")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := elector.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrHeld) || time.Since(begin) > time.Second {
					t.Errorf("IsLeader: %v after %v", err, time.Since(begin))
				}
				time.Sleep(time.Minute)
				if n := events.Failures("acquire"); n < 5 {
					t.Errorf("%d failures reported in a minute", n)
				}
				fails.Store(nil)
				time.Sleep(time.Minute)
				if err := elector.IsLeader(t.Context()); err != nil {
					t.Errorf("IsLeader of a backend that works again: %v", err)
				}
			})
		})
	}
}

// The jobs of a leader that loses the lock see that before another leads.
func TestElectorLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, err := gocronlock.NewElector(locktest.NewClient(t, store.Locker()), "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		if err := first.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		operator := locktest.NewClient(t, store.Locker())
		second, err := gocronlock.NewElector(operator, "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		if err := second.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("IsLeader of the second: %v", err)
		}
		job := first.Task(func(ctx context.Context) error {
			if _, ok := holdfast.TokenFromContext(ctx); !ok {
				t.Error("the job has no token")
			}
			if err := operator.Break(ctx, "scheduler", driver.BreakAnybody()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if second.IsLeader(context.Background()) == nil {
				t.Error("the second led before the job's context ended")
			}
			return context.Cause(ctx)
		})
		if err := job(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the job's context ended with %v", err)
		}
		if err := job(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a job without leadership: %v", err)
		}
		time.Sleep(time.Minute)
		if leads := []bool{first.IsLeader(t.Context()) == nil, second.IsLeader(t.Context()) == nil}; leads[0] == leads[1] {
			t.Errorf("who leads after the loss: %v", leads)
		}
	})
}

// Shutdown without Close ends the campaign, and releases leadership after the jobs.
func TestShutdownWaitsForTheElectorsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		client := locktest.NewClient(t, store.Locker())
		elector, err := gocronlock.NewElector(client, "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		if err := elector.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		var stopped atomic.Bool
		go func() {
			_ = elector.Task(func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				stopped.Store(true)
				return nil
			})(context.Background())
		}()
		synctest.Wait()
		if err := client.Shutdown(context.Background()); err != nil || !stopped.Load() {
			t.Errorf("Shutdown: %v, the job has stopped: %t", err, stopped.Load())
		}
		if err := elector.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("IsLeader after Shutdown: %v", err)
		}
	})
}
