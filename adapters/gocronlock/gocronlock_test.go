package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func newClient(t *testing.T, l holdfast.Locker) *holdfast.Client {
	t.Helper()
	start := time.Now()
	c, err := holdfast.New(l, holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

func TestInvalidArguments(t *testing.T) {
	client := newClient(t, memory.New())
	type twoMethods interface {
		Lock
		Extend()
	}
	for what, err := range map[string]error{
		"nil client":       func() error { _, err := gocronlock.NewLocker[Lock](nil, time.Second); return err }(),
		"no minimum hold":  func() error { _, err := gocronlock.NewLocker[Lock](client, 0); return err }(),
		"nil option":       func() error { _, err := gocronlock.NewLocker[Lock](client, time.Second, nil); return err }(),
		"another Lock":     func() error { _, err := gocronlock.NewLocker[twoMethods](client, time.Second); return err }(),
		"elector's client": func() error { _, err := gocronlock.NewElector(nil, "x"); return err }(),
		"elector's name":   func() error { _, err := gocronlock.NewElector(client, ""); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// broken is a Locker of a backend that can fail.
type broken struct {
	holdfast.Locker
	fails *atomic.Bool
}

func (b broken) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if b.fails.Load() {
		return holdfast.Lease{}, errors.New("no route to host")
	}
	return b.Locker.TryAcquire(ctx, req)
}

func TestElectorAnswersWhileTheBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		fails.Store(true)
		elector, err := gocronlock.NewElector(newClient(t, broken{memory.New(), &fails}), "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := elector.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrHeld) || time.Since(begin) > time.Second {
			t.Errorf("IsLeader: %v after %v", err, time.Since(begin))
		}
		fails.Store(false)
		time.Sleep(time.Minute)
		if err := elector.IsLeader(t.Context()); err != nil {
			t.Errorf("IsLeader of a backend that works again: %v", err)
		}
	})
}

// The jobs of a leader that loses the lock see that before another leads.
func TestElectorLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, err := gocronlock.NewElector(newClient(t, store.Locker()), "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		if err := first.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		operator := newClient(t, store.Locker())
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
			if err := operator.Break(ctx, "scheduler", 0); err != nil {
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
		client := newClient(t, store.Locker())
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
