package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Close returns soon after its context has ended, even while the release of an idle leader hangs.
func TestClose_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := locktest.NewRunner(t, locktest.FaultyClient(t, memory.New(), locktest.Each(locktest.OpRelease, locktest.Fault{Hang: true})))
		if _, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := r.Close(ctx)
		if d := time.Since(start); d > 4*time.Second { // one try
			t.Errorf("Close with a context of 1 s took %v (%v)", d, err)
		}
		if err == nil {
			t.Error("Close says that the lock was released")
		}
	})
}

// An instance is interrupted at any instant, and at any call to the backend, of a life in which
// everything happens: tasks that fail, stall, lose the lease and end; backoff, cool-down and minimum
// hold; failed health checks; a rival; and faults of each kind.

// The faults of the backend, as the interrupted instance sees it.
var faultsByName = map[string]func(op string, n int, _ holdfast.Lease) locktest.Fault{
	"none": func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{} },
	"replies lost": func(_ string, n int, _ holdfast.Lease) locktest.Fault {
		return []locktest.Fault{{Lose: locktest.ErrInjected}, {}}[n%2]
	},
	"refused": func(_ string, n int, _ holdfast.Lease) locktest.Fault {
		return []locktest.Fault{{Refuse: locktest.ErrInjected}, {}}[n%2]
	},
	"hung": func(_ string, n int, _ holdfast.Lease) locktest.Fault {
		return []locktest.Fault{{}, {Hang: true}, {}}[n%3]
	},
	"landing late": func(_ string, n int, _ holdfast.Lease) locktest.Fault {
		return []locktest.Fault{{}, {Late: time.Second}, {Late: 2 * time.Second}}[n%3]
	},
	"slow": func(op string, n int, _ holdfast.Lease) locktest.Fault {
		return locktest.Fault{Delay: 220 * time.Millisecond, IgnoreContext: n%2 == 0}
	},
	"no renewals": locktest.Each(locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}),
}

const lifeTTL = 3 * time.Second

// life is one instance with a rival.
type life struct {
	t      *testing.T
	store  *memory.Store
	locker *locktest.Faulty
	client *holdfast.Client
	runner *holdfast.LeaderAwareRunner
	rival  *holdfast.LeaderAwareRunner
	check  *locktest.Exclusive
	cancel context.CancelFunc
	ctx    context.Context
	tasks  int
	wg     sync.WaitGroup
}

// interruptions has ways to interrupt an instance, and the errors that its calls must return.
var interruptions = map[string]struct {
	do  func(l *life)
	err error
}{
	"cancel":   {func(l *life) { l.cancel() }, context.Canceled},
	"close":    {func(l *life) { l.bounded(l.runner.Close); l.cancel() }, holdfast.ErrClosed},
	"shutdown": {func(l *life) { l.bounded(l.client.Shutdown); l.cancel() }, holdfast.ErrClosed},
	"step down": {func(l *life) {
		l.bounded(l.runner.StepDown)
		if l.runner.IsLeader() {
			l.t.Error("leads right after StepDown")
		}
		time.Sleep(time.Second)
		l.cancel()
	}, context.Canceled},
}

// bounded calls end with a limit of a minute, which is more than anything here may take.
func (l *life) bounded(end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := end(ctx); err != nil {
		l.t.Errorf("%v", err)
	}
}

func newLife(t *testing.T, faults func(string, int, holdfast.Lease) locktest.Fault, atCall func(n int)) *life {
	t.Helper()
	l := &life{t: t, store: memory.NewStore(), check: locktest.NewExclusive(t)}
	total, mu := 0, sync.Mutex{}
	l.locker = locktest.NewFaulty(t, l.store.Locker(), func(op string, n int, lease holdfast.Lease) locktest.Fault {
		mu.Lock()
		total++
		now := total
		mu.Unlock()
		atCall(now)
		return faults(op, n, lease)
	})
	opts := []holdfast.ClientOption{holdfast.WithTTL(lifeTTL), holdfast.WithPollInterval(400 * time.Millisecond)}
	l.client = locktest.NewClient(t, l.locker, opts...)
	checks := 0
	l.runner = locktest.NewRunner(t, l.client, holdfast.WithOwner("a"), holdfast.WithMinHold(1700*time.Millisecond),
		holdfast.WithCoolDown(900*time.Millisecond),
		holdfast.WithStallTimeout(1300*time.Millisecond), holdfast.WithIdleLimit(2*time.Second),
		holdfast.WithRestart(holdfast.Backoff{Initial: 600 * time.Millisecond, Max: time.Second}),
		holdfast.WithHealthCheck(1100*time.Millisecond, func(ctx context.Context) error {
			if checks++; checks%5 == 4 {
				return locktest.ErrInjected
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			return nil
		}))
	l.rival = locktest.NewRunner(t, locktest.NewClient(t, l.store.Locker(), opts...), holdfast.WithOwner("b"),
		holdfast.WithCoolDown(time.Second))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// enter is called first by each task; other is the rival of its runner.
func (l *life) enter(ctx context.Context, other *holdfast.LeaderAwareRunner) {
	token, _ := holdfast.TokenFromContext(ctx)
	l.check.EnterAgain(ctx, "job", token)
	if ctx.Err() == nil && other.IsLeader() {
		l.t.Error("both lead at once")
	}
}

// task behaves differently in each call.
func (l *life) task(ctx context.Context) error {
	l.enter(ctx, l.rival)
	l.tasks++
	switch l.tasks % 4 {
	case 1: // fails
		time.Sleep(700 * time.Millisecond)
		return locktest.ErrTask
	case 2: // sends heartbeats, and stops a little late
		for ctx.Err() == nil && l.tasks < 50 {
			holdfast.Heartbeat(ctx)
			time.Sleep(300 * time.Millisecond)
		}
		return context.Cause(ctx)
	case 3: // is done
		return nil
	default: // hangs for longer than the lease
		time.Sleep(5 * time.Second)
		return nil
	}
}

// run lives until it is interrupted, and then checks that nothing is left.
func (l *life) run(mode string, want error) {
	if mode == "Run" {
		l.wg.Go(func() { l.campaign(want) })
	} else {
		l.wg.Go(func() { l.call(want) })
	}
	rivalDone := locktest.Campaign(context.Background(), l.rival, func(ctx context.Context) error {
		l.enter(ctx, l.runner)
		time.AfterFunc(800*time.Millisecond, func() { _ = l.rival.StepDown(context.Background()) })
		return locktest.LeadUntilCanceled(ctx)
	})
	l.wg.Wait()
	l.bounded(l.rival.Close)
	if err := <-rivalDone; !errors.Is(err, holdfast.ErrClosed) {
		l.t.Errorf("the rival: %v", err)
	}
	l.bounded(l.runner.Close)
	time.Sleep(lifeTTL + 2*time.Second) // what landed late has expired
	if locktest.IsHeld(l.t, l.store, "job") {
		l.t.Error("held after everything has returned")
	}
	l.bounded(l.client.Shutdown)
	n := l.locker.Total()
	time.Sleep(time.Hour)
	if l.locker.Total() != n {
		l.t.Error("calls to the backend after Shutdown")
	}
}

func (l *life) campaign(want error) {
	for {
		err := l.runner.Run(l.ctx, l.task)
		switch {
		case errors.Is(err, want):
			return
		case err == nil, l.ctx.Err() != nil: // the task's own result
		default:
			l.t.Errorf("Run: %v", err)
			return
		}
	}
}

func (l *life) call(want error) {
	for {
		_, err := l.runner.RunTaskOnLeader(l.ctx, l.task)
		switch {
		case errors.Is(err, want), l.ctx.Err() != nil:
			return
		case errors.Is(err, holdfast.ErrHeld), errors.Is(err, driver.ErrInvalid):
			l.t.Errorf("RunTaskOnLeader: %v", err)
		}
		time.Sleep(450 * time.Millisecond)
	}
}

// forEveryLife runs fn for each mode, interruption and faults.
func forEveryLife(t *testing.T, fn func(t *testing.T, mode, how, faults string)) {
	t.Helper()
	for _, mode := range []string{"Run", "RunTaskOnLeader"} {
		for how := range interruptions {
			for faults := range faultsByName {
				t.Run(fmt.Sprintf("%s/%s/%s", mode, how, faults), func(t *testing.T) { fn(t, mode, how, faults) })
			}
		}
	}
}

// Each run of the test uses other instants, so that many runs cover all of them.
func TestRunner_InterruptedAtAnyInstant(t *testing.T) {
	const stride, life = 1370 * time.Millisecond, 16 * time.Second
	forEveryLife(t, func(t *testing.T, mode, how, faults string) {
		for after := rand.N(stride); after < life; after += stride {
			synctest.Test(t, func(t *testing.T) {
				l := newLife(t, faultsByName[faults], func(int) {})
				l.wg.Go(func() {
					time.Sleep(after)
					interruptions[how].do(l)
				})
				l.run(mode, interruptions[how].err)
			})
			if t.Failed() {
				t.Fatalf("when interrupted after %v", after)
			}
		}
	})
}

func TestRunner_InterruptedAtAnyCall(t *testing.T) {
	forEveryLife(t, func(t *testing.T, mode, how, faults string) {
		for k := 1 + rand.N(6); k < 30; k += 6 {
			synctest.Test(t, func(t *testing.T) {
				var l *life
				l = newLife(t, faultsByName[faults], func(n int) {
					if n == k {
						l.wg.Go(func() { interruptions[how].do(l) })
						synctest.Wait() // the interruption proceeds as far as it can before the call is answered
					}
				})
				l.run(mode, interruptions[how].err)
			})
			if t.Failed() {
				t.Fatalf("when interrupted at call %d", k)
			}
		}
	})
}

// A task that stops slowly after the end of Run's context may outlive its lease. Run's error then
// matches ErrLost, and the task's own error if there is one. A StepDown after the loss does not change that.
func TestRun_LossAfterItsContextEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		result error // of the task
		late   bool  // the context ends after the loss and a StepDown
	}{"the task returns nil": {}, "the task fails": {result: locktest.ErrTask}, "stepped down meanwhile": {late: true}} {
		locktest.Bubble(t, name, func(t *testing.T) {
			r := locktest.NewRunner(t, locktest.FaultyClient(t, memory.New(), locktest.RenewalFaults()))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := locktest.Campaign(ctx, r, func(context.Context) error { time.Sleep(time.Minute); return tc.result })
			time.Sleep(time.Second)
			if tc.late {
				time.Sleep(39 * time.Second)
				limited, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if err := r.StepDown(limited); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("StepDown: %v", err)
				}
			}
			cancel()
			if err := <-done; !errors.Is(err, holdfast.ErrLost) || tc.result != nil && !errors.Is(err, tc.result) ||
				errors.Is(err, holdfast.ErrSteppedDown) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// A panic of the driver in the release reaches the caller; if that recovers, the runner campaigns again and the Client can be
// shut down.
func TestRunnerAfterAPanicInItsRelease(t *testing.T) {
	var met atomic.Bool
	l := driver.Intercept(memory.New(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if call.Method == driver.MethodRelease && met.CompareAndSwap(false, true) {
			panic("oops")
		}
		return next(ctx, call)
	})
	c, err := holdfast.New(l)
	if err != nil {
		t.Fatal(err)
	}
	r := locktest.NewRunner(t, c)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the caller sees no panic")
			}
		}()
		_ = r.Run(t.Context(), locktest.EmptyTask)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Run(ctx, locktest.EmptyTask); err != nil {
		t.Errorf("the next Run: %v", err)
	}
	limited, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := c.Shutdown(limited); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A request during which the driver has panicked is cleaned up: the lock may have been granted.
func TestRunnerAfterAPanicInItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			answer := next(ctx, call)
			if call.Method == driver.MethodTryAcquire {
				panic("oops")
			}
			return answer
		})
		r := locktest.NewRunner(t, locktest.NewClient(t, l))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the caller sees no panic")
				}
			}()
			_, _ = r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
		}()
		time.Sleep(time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("the lock is held")
		}
	})
}
