package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/election"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Ways for a health check to fail.
var sick = map[string]func(ctx context.Context) error{
	"error":  func(context.Context) error { return locktest.ErrInjected },
	"panic":  func(context.Context) error { panic("sick to death") },
	"goexit": func(context.Context) error { runtime.Goexit(); return nil },
	"slow":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	"deaf":   func(context.Context) error { time.Sleep(10 * time.Minute); return nil },
}

// A leader whose health check fails gives leadership up, and does not campaign before the check
// succeeds again and the cool-down has ended.
func TestHealthCheck_LeaderGivesUp(t *testing.T) {
	const every, cool = 10 * time.Second, 90 * time.Second
	for name, fail := range sick {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			var ill atomic.Bool
			var running atomic.Int32
			seen := locktest.Events{}
			a := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithObserver(seen.Observe), holdfast.WithCoolDown(cool),
				holdfast.WithHealthCheck(every, func(ctx context.Context) error {
					if running.Add(1) > 1 {
						t.Error("two health checks of one runner at once")
					}
					defer running.Add(-1)
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > every {
						t.Error("the health check has no time limit")
					}
					if ill.Load() {
						return fail(ctx)
					}
					return nil
				}))
			var leaderships atomic.Int32
			cause := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := locktest.Campaign(ctx, a, func(ctx context.Context) error {
				first := leaderships.Add(1) == 1
				<-ctx.Done()
				if first {
					cause <- context.Cause(ctx)
				}
				return nil
			})
			time.Sleep(time.Minute + time.Second)
			if !a.IsLeader() {
				t.Fatal("a healthy leader stepped down")
			}
			ill.Store(true)
			start := time.Now()
			why := <-cause
			if d := time.Since(start); !errors.Is(why, holdfast.ErrSteppedDown) || d > 2*every {
				t.Errorf("cause %v after %v, want ErrSteppedDown within two intervals", why, d)
			}
			switch name {
			case "error":
				if !errors.Is(why, locktest.ErrInjected) {
					t.Errorf("cause %v does not say why", why)
				}
			case "panic": // not swallowed: value and stack are reported
				if text := why.Error(); !strings.Contains(text, "sick to death") || !strings.Contains(text, "runner_health_test.go") {
					t.Errorf("cause of a panic: %v", why)
				}
			}
			synctest.Wait()
			if locktest.IsHeld(t, store, "job") {
				t.Error("still held by a sick instance whose task has returned")
			}
			if seen.Failures("health check") == 0 || seen.Count(holdfast.EventSteppedDown) != 1 {
				t.Errorf("%d failures and %d step-downs reported", seen.Failures("health check"), seen.Count(holdfast.EventSteppedDown))
			}
			time.Sleep(20 * time.Minute)
			if leaderships.Load() != 1 || a.IsLeader() {
				t.Error("leads although it is sick")
			}
			if n := seen.Failures("health check"); n < 20 {
				t.Errorf("a lasting failure was reported %d times in twenty minutes", n)
			}
			ill.Store(false)
			time.Sleep(11 * time.Minute)
			if leaderships.Load() != 2 || !a.IsLeader() {
				t.Errorf("%d leaderships, leader %v: an instance that is well again must campaign", leaderships.Load(), a.IsLeader())
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestHealthCheck_RunTaskOnLeader(t *testing.T) {
	for name, fail := range sick {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			var ill atomic.Bool
			r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithCoolDown(time.Second), holdfast.WithIdleLimit(time.Hour),
				holdfast.WithHealthCheck(10*time.Second, func(ctx context.Context) error {
					if ill.Load() {
						return fail(ctx)
					}
					return nil
				}))
			mustRun(t, r, locktest.EmptyTask, true)
			time.Sleep(time.Minute)
			if !r.IsLeader() {
				t.Error("a healthy instance gave up between its calls")
			}
			ill.Store(true)
			time.Sleep(21 * time.Second)
			if r.IsLeader() || locktest.IsHeld(t, store, "job") {
				t.Error("a sick instance keeps leadership between its calls")
			}
			ran, err := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
			if ran || err == nil || errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("RunTaskOnLeader of a sick instance: %v, %v", ran, err)
			}
			time.Sleep(10 * time.Minute) // even the deaf check has returned
		})
	}
}

// A slow check delays neither the stall watchdog nor the idle limit.
func TestHealthCheck_SlowOneDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), holdfast.WithIdleLimit(15*time.Minute),
			holdfast.WithStallTimeout(7*time.Second), holdfast.WithCoolDown(time.Second),
			holdfast.WithHealthCheck(10*time.Minute, func(context.Context) error { time.Sleep(9 * time.Minute); return nil }))
		lead := func() { // it may follow a check before the campaign
			mustRun(t, r, locktest.EmptyTask, true)
			time.Sleep(11 * time.Minute) // until a check is under way
		}
		lead()
		start := time.Now()
		ran, err := r.RunTaskOnLeader(t.Context(), locktest.LeadUntilCanceled)
		if d := time.Since(start); !ran || !errors.Is(err, election.ErrStalled) || d != 7*time.Second {
			t.Errorf("%v, %v: the stall was found after %v, want 7s", ran, err, d)
		}
		time.Sleep(10 * time.Minute)
		lead()
		if !locktest.IsHeld(t, store, "job") {
			t.Error("released before the idle limit")
		}
		if time.Sleep(4*time.Minute + time.Second); locktest.IsHeld(t, store, "job") {
			t.Error("a slow health check delays the idle limit")
		}
		time.Sleep(10 * time.Minute)
	})
}

// A check that is cut short by the end of the campaign or the leadership has not failed.
func TestHealthCheck_CutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := locktest.Events{}
		r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()), holdfast.WithObserver(seen.Observe),
			holdfast.WithHealthCheck(time.Minute, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Second):
				}
				return ctx.Err()
			}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // in the check before a campaign
		defer cancel()
		if err := r.Run(ctx, locktest.LeadUntilCanceled); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
		done := locktest.Campaign(t.Context(), r, locktest.LeadUntilCanceled)
		time.Sleep(30*time.Second + time.Minute + 10*time.Second) // in the first check of the leadership
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if seen.Failures("health check") != 0 || seen.Count(holdfast.EventSteppedDown) != 0 {
			t.Error("a check that was cut short was reported as a failure")
		}
	})
}

// Shutdown says that a health check has not returned. The goroutines of a runner whose leadership has ended are not left over, also
// if Shutdown has no time to wait for them.
func TestHealthCheck_Shutdown(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, memory.New())
			block, calls := make(chan struct{}), 0
			r := locktest.NewRunner(t, c, holdfast.WithHealthCheck(time.Second, func(context.Context) error {
				if calls++; hangs && calls == 2 {
					<-block
				}
				return nil
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = r.Run(ctx, func(ctx context.Context) error {
				time.AfterFunc(1500*time.Millisecond, cancel)
				return locktest.LeadUntilCanceled(ctx)
			})
			left := fmt.Sprint(c.Shutdown(ctx)) // without a check there may be an event that the observers have not seen
			if strings.Contains(left, "cleanup") || strings.Contains(left, "health check") != hangs {
				t.Errorf("a health check hangs: %v, and Shutdown returned: %s", hangs, left)
			}
			close(block)
		})
	}
}

// A suspend of the machine is no silence of the task, but a task that stays silent afterwards has stalled.
func TestStall_NotBySuspend(t *testing.T) {
	for at := 30 * time.Second; at < 40*time.Second; at += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			var silent atomic.Bool
			c, suspend := locktest.PausableClient(t, memory.New(), holdfast.WithTTL(time.Minute))
			seen := locktest.Events{}
			r := locktest.NewRunner(t, c, holdfast.WithObserver(seen.Observe), holdfast.WithStallTimeout(10*time.Second))
			ctx, cancel := context.WithCancel(t.Context())
			done := locktest.Campaign(ctx, r, func(ctx context.Context) error {
				for ctx.Err() == nil {
					if !silent.Load() {
						holdfast.Heartbeat(ctx)
					}
					select {
					case <-time.After(3 * time.Second):
					case <-ctx.Done():
					}
				}
				return nil
			})
			time.Sleep(at)
			suspend(15 * time.Second)
			time.Sleep(20 * time.Second)
			if n := seen.Count(holdfast.EventSteppedDown); n != 0 {
				t.Errorf("suspended after %v: %d step-downs", at, n)
			}
			silent.Store(true)
			time.Sleep(20*time.Second + time.Millisecond)
			if n := seen.Count(holdfast.EventSteppedDown); n != 1 {
				t.Errorf("suspended after %v, and silent later: %d step-downs", at, n)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// A task that is slow to stop after a loss has not stalled: there is nothing to give up, and no
// cool-down before the next campaign.
func TestStall_NotAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}))
		seen := locktest.Events{}
		r := locktest.NewRunner(t, locktest.NewClient(t, f), holdfast.WithObserver(seen.Observe), holdfast.WithCoolDown(time.Hour),
			holdfast.WithStallTimeout(40*time.Second))
		ran, err := r.RunTaskOnLeader(t.Context(), slowly(time.Minute))
		if !ran || !errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrSteppedDown) {
			t.Errorf("RunTaskOnLeader: %v, %v", ran, err)
		}
		mustRun(t, r, locktest.EmptyTask, true)
		synctest.Wait()
		if n := seen.Count(holdfast.EventSteppedDown); n != 0 {
			t.Errorf("%d step-downs reported", n)
		}
	})
}
