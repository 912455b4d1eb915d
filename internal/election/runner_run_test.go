package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Runners that have run and were not closed leave no memory behind on the client.
func TestRunner_LeavesNoMemoryBehind(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run := func(n int) {
		for i := range n {
			r, err := holdfast.NewLeaderAwareRunner(c, fmt.Sprint("job", i%10))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(100)
	before := heap()
	run(20_000)
	if per := (int64(heap()) - int64(before)) / 20_000; per > 50 {
		t.Errorf("each finished runner leaves %d bytes behind", per)
	}
}

func TestRun_TaskEndsWhileLeading(t *testing.T) {
	for name, tc := range map[string]struct {
		task  locktest.Task
		err   error
		panic any
		ends  bool // the caller's goroutine, by that panic or by Goexit
	}{
		"done":   {task: locktest.EmptyTask},
		"failed": {task: func(context.Context) error { return locktest.ErrTask }, err: locktest.ErrTask},
		"panics": {task: func(context.Context) error { panic("boom") }, panic: "boom", ends: true},
		"goexit": {task: func(context.Context) error { runtime.Goexit(); return nil }, ends: true},
	} {
		for _, mode := range []string{"Run", "RunTaskOnLeader"} {
			locktest.Bubble(t, mode+" "+name, func(t *testing.T) {
				store := memory.NewStore()
				r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()))
				returned, finished := false, make(chan struct{})
				go func() {
					defer close(finished)
					defer func() { // on the caller's goroutine, after the release
						if p := recover(); p != tc.panic {
							t.Errorf("recovered %v, want %v", p, tc.panic)
						}
						if kept := mode != "Run" && !tc.ends; locktest.IsHeld(t, store, "job") != kept || r.IsLeader() != kept {
							t.Errorf("held: %v, leader: %v, want %v", locktest.IsHeld(t, store, "job"), r.IsLeader(), kept)
						}
					}()
					var err error
					if mode == "Run" {
						err = r.Run(t.Context(), tc.task)
					} else {
						_, err = r.RunTaskOnLeader(t.Context(), tc.task)
					}
					returned = true
					if !errors.Is(err, tc.err) || tc.err == nil && err != nil {
						t.Errorf("%v, want %v", err, tc.err)
					}
				}()
				<-finished
				if returned == tc.ends {
					t.Errorf("returned: %v", returned)
				}
				// The runner can be used again, in either mode.
				mustRun(t, r, locktest.EmptyTask, true)
				if err := r.Run(t.Context(), locktest.EmptyTask); err != nil {
					t.Errorf("Run afterwards: %v", err)
				}
				mustRun(t, locktest.NewRunner(t, locktest.NewClient(t, store.Locker())), locktest.EmptyTask, true)
			})
		}
	}
}

// After a loss the runner campaigns again, but not before its task has returned and the lock is
// released.
func TestRun_CampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var failing, running atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew && failing.Load() {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			if op != locktest.OpRenew && running.Load() {
				t.Errorf("%s while the task still ran", op)
			}
			return locktest.Fault{}
		})
		check, seen := locktest.NewExclusive(t), locktest.Events{}
		r := locktest.NewRunner(t, locktest.NewClient(t, f), holdfast.WithObserver(seen.Observe))
		var leaderships atomic.Int32
		done := locktest.Campaign(t.Context(), r, func(ctx context.Context) error {
			token, ok := holdfast.TokenFromContext(ctx)
			if !ok {
				t.Error("no token in the task's context")
			}
			check.Enter(ctx, "job", token)
			if leaderships.Add(1) == 3 {
				return nil
			}
			running.Store(true)
			defer running.Store(false)
			failing.Store(true)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrLost) {
				t.Errorf("cause %v, want ErrLost", cause)
			}
			if r.IsLeader() {
				t.Error("IsLeader after a loss")
			}
			failing.Store(false)
			time.Sleep(time.Minute) // slow to stop
			return locktest.ErrTask
		})
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if leaderships.Load() != 3 || locktest.IsHeld(t, store, "job") {
			t.Errorf("%d leaderships, held %v", leaderships.Load(), locktest.IsHeld(t, store, "job"))
		}
		synctest.Wait()
		if n := seen.Failures("task"); n != 2 { // an error that Run does not return is reported
			t.Errorf("the task's error was reported %d times, want 2", n)
		}
		if l, o := seen.Count(holdfast.EventLost), seen.Count(holdfast.EventOverrun); l != 2 || o != 2 {
			t.Errorf("%d losses and %d overruns reported, want 2 and 2", l, o)
		}
	})
}

func TestRun_Restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		seen := locktest.Events{}
		c := locktest.NewClient(t, store.Locker())
		r := locktest.NewRunner(t, c, holdfast.WithObserver(seen.Observe),
			holdfast.WithRestart(holdfast.Backoff{Initial: 8 * time.Second, Max: 64 * time.Second}))
		var ended time.Time
		n := 0
		want := []time.Duration{0, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 64 * time.Second, 8 * time.Second,
			16 * time.Second}
		err := r.Run(t.Context(), func(context.Context) error {
			if pause := time.Since(ended); n > 0 {
				if w := want[n]; pause < w*3/4 || pause > w*5/4+time.Second {
					t.Errorf("pause %d was %v, want about %v", n, pause, w)
				}
			}
			if n++; n == len(want) {
				return nil
			}
			if n == 6 { // a long leadership: the backoff starts again
				time.Sleep(65 * time.Second)
			}
			time.AfterFunc(3*time.Second, func() { // meanwhile another may hold it
				if locktest.IsHeld(t, store, "job") {
					t.Error("held during the backoff")
				}
			})
			ended = time.Now()
			return locktest.ErrTask
		})
		synctest.Wait()
		if err != nil || seen.Failures("task") != len(want)-1 {
			t.Errorf("Run: %v, and %d failures reported, want %d", err, seen.Failures("task"), len(want)-1)
		}
	})
}

func TestRun_MinHold(t *testing.T) {
	const least = 20 * time.Second
	done := func(context.Context) error { time.Sleep(time.Second); return nil }
	for name, tc := range map[string]struct {
		cut  func(cancel func(), r *holdfast.LeaderAwareRunner, c *holdfast.Client) // after 5 s
		want time.Duration
		task locktest.Task
		err  error
	}{
		"the whole time": {want: least, task: done},
		"a longer task":  {want: 25 * time.Second, task: func(context.Context) error { time.Sleep(25 * time.Second); return nil }},
		"a failure": {want: time.Second, task: func(context.Context) error { time.Sleep(time.Second); return locktest.ErrTask },
			err: locktest.ErrTask},
		"canceled": {want: 5 * time.Second, task: done, cut: func(cancel func(), _ *holdfast.LeaderAwareRunner,
			_ *holdfast.Client) {
			cancel()
		}},
		"stepped down": {want: 5 * time.Second, task: done, cut: func(_ func(), r *holdfast.LeaderAwareRunner, _ *holdfast.Client) {
			_ = r.StepDown(context.Background())
		}},
		"closed": {want: 5 * time.Second, task: done, cut: func(_ func(), r *holdfast.LeaderAwareRunner, _ *holdfast.Client) {
			_ = r.Close(context.Background())
		}},
		"shut down": {want: 5 * time.Second, task: done, cut: func(_ func(), _ *holdfast.LeaderAwareRunner, c *holdfast.Client) {
			_ = c.Shutdown(context.Background())
		}},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, store.Locker())
			r := locktest.NewRunner(t, c, holdfast.WithMinHold(least))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			start := time.Now()
			if tc.cut != nil {
				time.AfterFunc(5*time.Second, func() { tc.cut(cancel, r, c) })
			}
			err := r.Run(ctx, tc.task)
			if d := time.Since(start); d != tc.want || !errors.Is(err, tc.err) || tc.err == nil && err != nil {
				t.Errorf("Run: %v after %v, want %v after %v", err, d, tc.err, tc.want)
			}
			if locktest.IsHeld(t, store, "job") {
				t.Error("held after Run")
			}
		})
	}
}

func TestRun_ContextOfTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		errWhy := errors.New("why")
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		leaked := make(chan context.Context, 1)
		err := r.Run(ctx, func(ctx context.Context) error {
			if ctx.Value(key{}) != "value" {
				t.Error("the caller's values are not in the task's context")
			}
			leaked <- ctx
			cancel(errWhy)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errWhy) {
				t.Errorf("cause %v, want the caller's", context.Cause(ctx))
			}
			return nil // the task finished, so its result counts
		})
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := r.Run(ctx, locktest.LeadUntilCanceled); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
			t.Errorf("Run with a context that has ended: %v", err)
		}
		if ctx := <-leaked; !errors.Is(context.Cause(ctx), errWhy) {
			t.Error("the task's context changed its cause")
		}
		_ = r.Run(t.Context(), func(ctx context.Context) error { leaked <- ctx; return nil })
		last := <-leaked
		if last.Err() == nil {
			t.Error("the task's context outlives the task")
		}
		if _, err := r.RunTaskOnLeader(context.WithoutCancel(last), locktest.EmptyTask); err != nil {
			t.Errorf("with the context of a task that has returned: %v", err)
		}
	})
}

// When the lock is granted after the end of the call, no task begins.
func TestRun_NoTaskBeginsAfterTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end func(cancel func(), r *holdfast.LeaderAwareRunner, c *holdfast.Client)
		err error
	}{
		"canceled": {func(cancel func(), _ *holdfast.LeaderAwareRunner, _ *holdfast.Client) { cancel() }, context.Canceled},
		"closed": {func(_ func(), r *holdfast.LeaderAwareRunner, _ *holdfast.Client) {
			_ = r.Close(context.Background())
		}, holdfast.ErrClosed},
		"closed with an ended context": {func(_ func(), r *holdfast.LeaderAwareRunner, _ *holdfast.Client) {
			if err := r.Close(locktest.Ended()); !errors.Is(err, context.Canceled) {
				t.Errorf("Close: %v", err)
			}
		}, holdfast.ErrClosed},
		"shut down": {func(_ func(), _ *holdfast.LeaderAwareRunner, c *holdfast.Client) {
			_ = c.Shutdown(context.Background())
		}, holdfast.ErrClosed},
	} {
		for _, mode := range []string{"Run", "RunTaskOnLeader"} {
			locktest.Bubble(t, mode+" "+name, func(t *testing.T) {
				store := memory.NewStore()
				late := locktest.Fault{Delay: time.Second, IgnoreContext: true}
				c := locktest.FaultyClient(t, store.Locker(), locktest.Each(locktest.OpAcquire, late))
				r := locktest.NewRunner(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(time.Second/2, func() { tc.end(cancel, r, c) })
				begun := false
				fn := func(context.Context) error { begun = true; return nil }
				var err error
				if mode == "Run" {
					err = r.Run(ctx, fn)
				} else {
					_, err = r.RunTaskOnLeader(ctx, fn)
				}
				if !errors.Is(err, tc.err) {
					t.Errorf("%v, want %v", err, tc.err)
				}
				if begun {
					t.Error("a task was begun with a context that had ended")
				}
				if mode == "RunTaskOnLeader" && name == "canceled" {
					time.Sleep(2 * time.Minute) // the lock is kept until the idle limit
				}
				synctest.Wait() // a cleanup that Shutdown waits for
				if locktest.IsHeld(t, store, "job") {
					t.Error("still held")
				}
			})
		}
	}
}

// The errors of a Run that ends without a task's result.
func TestRun_ErrorsWhileWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		setup func(t *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption)
		task  locktest.Task
		want  error
	}{
		"behind another": {func(t *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption) {
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			return store.Locker(), nil
		}, nil, holdfast.ErrHeld},
		"behind a backend that fails": {func(t *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption) {
			return locktest.NewFaulty(t, store.Locker(),
				func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{Refuse: locktest.ErrInjected} }), nil
		}, nil, locktest.ErrInjected},
		"in the restart's backoff": {func(_ *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption) {
			return store.Locker(), []holdfast.RunnerOption{holdfast.WithRestart(holdfast.Backoff{Initial: time.Hour, Max: time.Hour})}
		}, func(context.Context) error { return locktest.ErrTask }, locktest.ErrTask},
		"unhealthy": {func(_ *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption) {
			return store.Locker(), []holdfast.RunnerOption{holdfast.WithHealthCheck(time.Hour,
				func(context.Context) error { return locktest.ErrInjected })}
		}, nil, locktest.ErrInjected},
		"cooling down": {func(_ *testing.T, store *memory.Store) (holdfast.Locker, []holdfast.RunnerOption) {
			return store.Locker(), []holdfast.RunnerOption{holdfast.WithStallTimeout(time.Second), holdfast.WithCoolDown(time.Hour)}
		}, locktest.LeadUntilCanceled, holdfast.ErrSteppedDown},
	} {
		for how, want := range map[string]error{"canceled": context.Canceled, "closed": holdfast.ErrClosed} {
			locktest.Bubble(t, name+" "+how, func(t *testing.T) {
				l, opts := tc.setup(t, memory.NewStore())
				r := locktest.NewRunner(t, locktest.NewClient(t, l), opts...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				fn := tc.task
				if fn == nil {
					fn = func(context.Context) error { t.Error("leads"); return nil }
				}
				done := locktest.Campaign(ctx, r, fn)
				time.Sleep(time.Minute)
				locktest.CheckPending(t, done, "before the end")
				if how == "canceled" {
					cancel()
				} else if err := r.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if err := <-done; !errors.Is(err, want) || how == "canceled" && !errors.Is(err, tc.want) {
					t.Errorf("Run: %v; want it to match %v and, if canceled, %v", err, want, tc.want)
				}
			})
		}
	}
}

func TestRun_BadArguments(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	r := locktest.NewRunner(t, c)
	if err := r.Run(t.Context(), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Run without a task: %v", err)
	}
	if _, err := r.RunTaskOnLeader(t.Context(), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("RunTaskOnLeader without a task: %v", err)
	}
	check := func(context.Context) error { return nil }
	for name, opts := range map[string][]holdfast.RunnerOption{
		"nil option":      {nil},
		"TTL":             {holdfast.WithTTL(-1)},
		"HealthCheck":     {holdfast.WithHealthCheck(0, check)},
		"HealthCheck nil": {holdfast.WithHealthCheck(time.Second, nil)},
		"StallTimeout":    {holdfast.WithStallTimeout(0)},
		"CoolDown":        {holdfast.WithCoolDown(-1)},
		"MinHold":         {holdfast.WithMinHold(0)},
		"IdleLimit":       {holdfast.WithIdleLimit(0)},
		"Initial":         {holdfast.WithRestart(holdfast.Backoff{Max: time.Second})},
		"Max":             {holdfast.WithRestart(holdfast.Backoff{Initial: 2, Max: 1})},
		"observer":        {holdfast.WithObserver(nil)},
	} {
		var invalid *holdfast.InvalidError
		if _, err := holdfast.NewLeaderAwareRunner(c, "job", opts...); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
	}
	if _, err := holdfast.NewLeaderAwareRunner(nil, "job"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	if _, err := holdfast.NewLeaderAwareRunner(c, ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}
