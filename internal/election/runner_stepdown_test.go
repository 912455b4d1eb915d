package election_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/election"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// slowly is a task that stops d after the end of its context.
func slowly(d time.Duration) locktest.Task {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(d)
		return context.Cause(ctx)
	}
}

// StepDown waits for the release, which waits for the task. During the cool-down that follows, the
// runner does not campaign.
func TestStepDown_HandsOver(t *testing.T) {
	const stop, cool = 50 * time.Second, 40 * time.Second
	for _, mode := range []string{"Run", "RunTaskOnLeader", "RunTaskOnLeader, idle"} {
		locktest.Bubble(t, mode, func(t *testing.T) {
			store := memory.NewStore()
			seen := locktest.Events{}
			a := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithCoolDown(cool), holdfast.WithObserver(seen.Observe))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var done <-chan error
			wantStop := stop
			switch mode {
			case "Run":
				leaderships := 0
				done = locktest.Campaign(ctx, a, func(ctx context.Context) error {
					if leaderships++; leaderships == 1 {
						return slowly(stop)(ctx)
					}
					return locktest.LeadUntilCanceled(ctx)
				})
			case "RunTaskOnLeader":
				go func() { _, _ = a.RunTaskOnLeader(ctx, slowly(stop)) }()
			default:
				mustRun(t, a, locktest.EmptyTask, true)
				wantStop = 0
			}
			time.Sleep(time.Second)
			var steps sync.WaitGroup
			for range 3 { // one step-down, however many calls there are
				steps.Go(func() {
					start := time.Now()
					if err := a.StepDown(t.Context()); err != nil {
						t.Errorf("StepDown: %v", err)
					}
					if d := time.Since(start); d != wantStop || locktest.IsHeld(t, store, "job") {
						t.Errorf("StepDown took %v (want %v), and the lock is held: %v", d, wantStop, locktest.IsHeld(t, store, "job"))
					}
				})
			}
			synctest.Wait()
			if a.IsLeader() {
				t.Error("IsLeader while stepping down")
			}
			steps.Wait()
			released := time.Now()
			if n := seen.Count(holdfast.EventSteppedDown); n != 1 {
				t.Errorf("the step-down was reported %d times", n)
			}
			if o, l := seen.Count(holdfast.EventOverrun), seen.Count(holdfast.EventLost); o+l != 0 {
				t.Errorf("%d overruns, %d losses: the lease was not kept until the task returned", o, l)
			}
			// The cool-down passes even without another instance.
			for !a.IsLeader() && time.Since(released) < time.Hour {
				if done == nil {
					_, err := a.RunTaskOnLeader(ctx, locktest.EmptyTask)
					if err != nil {
						t.Errorf("RunTaskOnLeader: %v", err)
					}
				}
				time.Sleep(time.Second / 2)
			}
			if d := time.Since(released); d < cool || d > cool+2*time.Second {
				t.Errorf("leads again %v after the release, want the cool-down of %v", d, cool)
			}
			cancel()
			if done != nil {
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			}
		})
	}
}

func TestStepDown_WithoutLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		seen := locktest.Events{}
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithObserver(seen.Observe), holdfast.WithCoolDown(time.Hour))
		done := locktest.Campaign(t.Context(), r, func(ctx context.Context) error { return nil })
		time.Sleep(time.Second)
		if err := r.StepDown(t.Context()); err != nil {
			t.Errorf("StepDown: %v", err)
		}
		locktest.Release(t, h)
		start := time.Now()
		if err := <-done; err != nil || time.Since(start) > time.Minute {
			t.Errorf("Run: %v after %v; a step-down without leadership must not cool down", err, time.Since(start))
		}
		if seen.Count(holdfast.EventSteppedDown) != 0 {
			t.Error("a step-down without leadership was reported")
		}
	})
}

// StepDown and Close that the task itself calls do not wait for it.
func TestStepDown_FromTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		seen := locktest.Events{}
		r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithObserver(seen.Observe))
		var ends []time.Time
		err := r.Run(t.Context(), func(ctx context.Context) error {
			end := r.StepDown
			if len(ends) == 1 {
				end = r.Close
			}
			if err := end(ctx); err != nil {
				t.Errorf("from the task: %v", err)
			}
			synctest.Wait()
			if ctx.Err() == nil {
				t.Error("the context is live after stepping down")
			}
			time.Sleep(time.Minute) // kept until the task has returned
			if !locktest.IsHeld(t, store, "job") {
				t.Error("released before the task had returned")
			}
			ends = append(ends, time.Now())
			return nil
		})
		if !errors.Is(err, holdfast.ErrClosed) || len(ends) != 2 {
			t.Errorf("Run: %v after %d leaderships", err, len(ends))
		}
		synctest.Wait()
		if seen.Count(holdfast.EventOverrun) != 0 {
			t.Error("an overrun was reported")
		}
	})
}

// When the context of StepDown or Close ends first, or a health check fails, the lease is no longer renewed and expires although the
// task still runs. Whoever follows leaderships by events learns of their ends.
func TestStepDown_TaskDoesNotReturn(t *testing.T) {
	const ttl, patience = 30 * time.Second, 5 * time.Second
	for name, tc := range map[string]struct {
		end  func(r *holdfast.LeaderAwareRunner, ctx context.Context) error // nil: the health check fails
		want error                                                          // of the task's context
	}{
		"StepDown":     {(*holdfast.LeaderAwareRunner).StepDown, holdfast.ErrSteppedDown},
		"Close":        {(*holdfast.LeaderAwareRunner).Close, holdfast.ErrClosed},
		"health check": {nil, holdfast.ErrSteppedDown},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			seen, overrun := locktest.Events{}, locktest.Events{}
			var ill atomic.Bool
			f := locktest.NewFaulty(t, store.Locker(), nil)
			r := locktest.NewRunner(t, locktest.NewClient(t, f), holdfast.WithObserver(seen.Observe), holdfast.WithOverrunHook(overrun.Observe),
				holdfast.WithHealthCheck(patience, func(context.Context) error {
					if ill.Load() {
						return locktest.ErrInjected
					}
					return nil
				}))
			stuck, result := make(chan struct{}), make(chan error)
			go func() {
				_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error {
					<-stuck
					if !errors.Is(context.Cause(ctx), tc.want) {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return nil
				})
				result <- err
			}()
			time.Sleep(time.Minute + time.Second)
			start := time.Now()
			if tc.end == nil {
				ill.Store(true)
				time.Sleep(patience)
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := tc.end(r, ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			}
			sent := f.Count(locktest.OpRenew)
			if r.IsLeader() || sent < 5 || !locktest.IsHeld(t, store, "job") {
				t.Errorf("leader: %v; %d renewals before; held: %v", r.IsLeader(), sent, locktest.IsHeld(t, store, "job"))
			}
			h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			if d := time.Since(start); d > patience+ttl+time.Second {
				t.Errorf("another leads only after %v", d)
			}
			if n := f.Count(locktest.OpRenew); n != sent {
				t.Errorf("%d more renewals", n-sent)
			}
			if seen.Count(holdfast.EventOverrun) != 1 || overrun.Count(holdfast.EventOverrun) != 1 {
				t.Error("the overrun was not reported")
			}
			close(stuck)
			if err := <-result; !errors.Is(err, tc.want) {
				t.Errorf("the task returned nil although its lock was not kept; RunTaskOnLeader: %v", err)
			}
			if tc.end != nil {
				if err := tc.end(r, t.Context()); err != nil {
					t.Errorf("%s again: %v", name, err)
				}
			}
			if h.Err() != nil {
				t.Errorf("the next leader's hold: %v", h.Err())
			}
			if synctest.Wait(); seen.Count(holdfast.EventSteppedDown) != 1 {
				t.Errorf("%d reports that the leadership was given up, want 1, among %v", seen.Count(holdfast.EventSteppedDown), seen.Types())
			}
		})
	}
}

// The watchdog detects a leader that is stuck but renews. Others lead when its lease expires, although
// its task never returns.
func TestStall_OthersLead(t *testing.T) {
	const ttl, limit = 30 * time.Second, 20 * time.Second
	for name, stop := range map[string]func(ctx context.Context, cancel func(), r *holdfast.LeaderAwareRunner){
		"leading":  func(context.Context, func(), *holdfast.LeaderAwareRunner) {},
		"canceled": func(_ context.Context, cancel func(), _ *holdfast.LeaderAwareRunner) { cancel() },
		// The task hangs when it should stop: the watchdog still detects it.
		"stepped down": func(ctx context.Context, _ func(), r *holdfast.LeaderAwareRunner) {
			go func() { _ = r.StepDown(context.Background()) }()
		},
		"closed": func(ctx context.Context, _ func(), r *holdfast.LeaderAwareRunner) {
			go func() { _ = r.Close(context.Background()) }()
		},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			seen := locktest.Events{}
			a := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithStallTimeout(limit), holdfast.WithObserver(seen.Observe))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			check := locktest.NewExclusive(t)
			never := make(chan struct{})
			begun := false
			done := locktest.Campaign(ctx, a, func(ctx context.Context) error {
				token, _ := holdfast.TokenFromContext(ctx)
				check.Enter(ctx, "job", token)
				if begun {
					return locktest.LeadUntilCanceled(ctx)
				}
				begun = true
				for range 100 { // well for a while
					time.Sleep(limit - time.Second)
					holdfast.Heartbeat(ctx)
				}
				if ctx.Err() != nil {
					t.Errorf("heartbeats did not keep it: %v", context.Cause(ctx))
				}
				stop(ctx, cancel, a)
				<-never
				return nil
			})
			time.Sleep(100*(limit-time.Second) + time.Second)
			b := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()))
			start := time.Now()
			led := make(chan time.Duration, 1)
			next := locktest.Campaign(t.Context(), b, func(ctx context.Context) error {
				token, _ := holdfast.TokenFromContext(ctx)
				check.Enter(ctx, "job", token)
				led <- time.Since(start)
				return locktest.LeadUntilCanceled(ctx)
			})
			if d := <-led; d > limit+ttl+time.Second {
				t.Errorf("another leads only after %v", d)
			}
			locktest.CheckPending(t, done, "the stuck task")
			if a.IsLeader() || seen.Count(holdfast.EventOverrun) != 1 {
				t.Errorf("the stuck instance leads: %v; %d overruns reported", a.IsLeader(), seen.Count(holdfast.EventOverrun))
			}
			if n := seen.Count(holdfast.EventSteppedDown); n != 1 {
				t.Errorf("%d step-downs reported, want 1", n)
			}
			if name == "leading" {
				if ev := seen.First(holdfast.EventSteppedDown); !errors.Is(ev.Err, election.ErrStalled) ||
					!errors.Is(ev.Err, holdfast.ErrSteppedDown) {
					t.Errorf("reported: %v", ev)
				}
			}
			close(never)
			synctest.Wait()
			if !locktest.IsHeld(t, store, "job") || !b.IsLeader() {
				t.Error("the late release freed the next leader")
			}
			cancel()
			if err := <-done; name == "leading" && !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
			if err := b.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-next; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("the next leader: %v", err)
			}
		})
	}
}

// Each task has its own heartbeats, and only a running task is watched.
func TestStall_OfOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()), holdfast.WithStallTimeout(10*time.Second),
			holdfast.WithIdleLimit(time.Hour), holdfast.WithMinHold(time.Hour))
		var old context.Context
		mustRun(t, r, func(ctx context.Context) error { old = ctx; return nil }, true)
		time.Sleep(time.Minute)
		if !r.IsLeader() {
			t.Error("stepped down while no task ran")
		}
		holdfast.Heartbeat(context.Background()) // of no task: nothing
		var beating atomic.Bool
		beating.Store(true)
		var beats sync.WaitGroup
		defer beats.Wait()
		beats.Go(func() {
			for beating.Load() {
				holdfast.Heartbeat(old)
				time.Sleep(time.Second)
			}
		})
		start := time.Now()
		ran, err := r.RunTaskOnLeader(t.Context(), locktest.LeadUntilCanceled)
		beating.Store(false)
		if d := time.Since(start); !ran || !errors.Is(err, election.ErrStalled) || !errors.Is(err, holdfast.ErrSteppedDown) ||
			d != 10*time.Second {
			t.Errorf("RunTaskOnLeader: %v, %v after %v; want ErrStalled after 10s", ran, err, d)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the minimum hold is no stall
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()), holdfast.WithStallTimeout(10*time.Second),
			holdfast.WithMinHold(time.Hour))
		start := time.Now()
		if err := r.Run(t.Context(), locktest.EmptyTask); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Run: %v after %v", err, time.Since(start))
		}
	})
}
