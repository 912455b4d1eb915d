package election_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestRunTaskOnLeader_CallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
		var running, ran atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				mustRun(t, r, func(context.Context) error {
					if running.Add(1) != 1 {
						t.Error("two tasks of one runner at once")
					}
					time.Sleep(time.Second)
					running.Add(-1)
					ran.Add(1)
					return nil
				}, true)
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if ran, err := r.RunTaskOnLeader(ctx, locktest.EmptyTask); ran || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call whose context ended in the queue: %v, %v", ran, err)
		}
		if err := r.Run(t.Context(), locktest.EmptyTask); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Run beside RunTaskOnLeader: %v", err)
		}
		wg.Wait()
		if ran.Load() != 20 {
			t.Errorf("%d tasks ran", ran.Load())
		}
	})
}

func TestRunner_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
		refused := func(ctx context.Context, where string) {
			if err := r.Run(ctx, locktest.EmptyTask); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Run %s: %v", where, err)
			}
			if ran, err := r.RunTaskOnLeader(ctx, locktest.EmptyTask); ran || !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("RunTaskOnLeader %s: %v, %v", where, ran, err)
			}
		}
		// From its own task either would deadlock.
		mustRun(t, r, func(ctx context.Context) error { refused(ctx, "in a task of RunTaskOnLeader"); return nil }, true)
		err := r.Run(t.Context(), func(ctx context.Context) error {
			refused(ctx, "in a task of Run")
			refused(context.Background(), "beside Run")
			return nil
		})
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		mustRun(t, r, locktest.EmptyTask, true)
	})
}

// Run and RunTaskOnLeader that begin at the same moment: one of them is refused.
func TestRunner_BusyAtOnce(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for range 200 {
		r := locktest.NewRunner(t, c)
		var running, refused atomic.Int32
		fn := func(context.Context) error {
			if running.Add(1) > 1 {
				t.Error("two tasks of one runner at once")
			}
			runtime.Gosched()
			running.Add(-1)
			return nil
		}
		note := func(err error) {
			if errors.Is(err, driver.ErrInvalid) {
				refused.Add(1)
			} else if err != nil {
				t.Errorf("%v", err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { note(r.Run(t.Context(), fn)) })
		wg.Go(func() { _, err := r.RunTaskOnLeader(t.Context(), fn); note(err) })
		wg.Wait()
		if refused.Load() > 1 {
			t.Error("both were refused")
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Shutdown waits for the cleanup of an attempt that ends in doubt meanwhile.
func TestRunTaskOnLeader_InDoubtDuringShutdown(t *testing.T) {
	for range 300 { // events of the same instant happen in random order
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			lost := locktest.Fault{Delay: time.Second, IgnoreContext: true, Lose: locktest.ErrInjected}
			c := locktest.FaultyClient(t, store.Locker(), locktest.Each(locktest.OpAcquire, lost))
			r := locktest.NewRunner(t, c)
			called := make(chan error)
			go func() { _, err := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask); called <- err }()
			time.Sleep(time.Second / 2)
			if err := c.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if locktest.IsHeld(t, store, "job") {
				t.Error("held after Shutdown")
			}
			if err := <-called; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("RunTaskOnLeader: %v", err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A call at the instant of the idle limit either resumes the leadership or acquires the lock again. The
// lock is never released while its task runs.
func TestRunTaskOnLeader_CallAtTheIdleLimit(t *testing.T) {
	const limit = 5 * time.Second
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithIdleLimit(limit))
			mustRun(t, r, locktest.EmptyTask, true)
			time.Sleep(limit)
			mustRun(t, r, func(ctx context.Context) error {
				time.Sleep(time.Second)
				if ctx.Err() != nil || !locktest.IsHeld(t, store, "job") {
					t.Errorf("the lock was released under a running task: %v", context.Cause(ctx))
				}
				return nil
			}, true)
		})
		if t.Failed() {
			return
		}
	}
}

// A task that runs in another runner's task counts as a task of both.
func TestRunner_TaskInAnotherRunnersTask(t *testing.T) {
	for name, task := range map[string]func(t *testing.T, ctx context.Context, outer *holdfast.LeaderAwareRunner) error{
		"busy": func(t *testing.T, ctx context.Context, outer *holdfast.LeaderAwareRunner) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			if _, err := outer.RunTaskOnLeader(ctx, locktest.LeadUntilCanceled); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("from the runner's own task: %v, want an InvalidError", err)
			}
			return nil
		},
		"heartbeat": func(_ *testing.T, ctx context.Context, _ *holdfast.LeaderAwareRunner) error {
			for range 30 {
				time.Sleep(time.Second)
				holdfast.Heartbeat(ctx)
			}
			return context.Cause(ctx)
		},
		"close": func(t *testing.T, ctx context.Context, outer *holdfast.LeaderAwareRunner) error {
			if err := outer.Close(ctx); err != nil {
				t.Errorf("Close from the task with its own context: %v", err)
			}
			return nil
		},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			c := locktest.NewClient(t, memory.New())
			inner, outer := locktest.NewRunnerOf(t, c, "inner"), locktest.NewRunner(t, c, holdfast.WithStallTimeout(10*time.Second))
			mustRun(t, outer, func(ctx context.Context) error {
				_, err := inner.RunTaskOnLeader(ctx, func(ctx context.Context) error { return task(t, ctx, outer) })
				return err // also if a task that sends heartbeats has stalled
			}, true)
		})
	}
}
