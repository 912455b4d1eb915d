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
	"weak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The leadership that RunTaskOnLeader keeps between calls does not keep the values of the first call's
// context.
func TestRunTaskOnLeader_DropsValuesOfTheFirstCall(t *testing.T) {
	type key struct{}
	type request [1 << 16]byte
	r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()), holdfast.WithIdleLimit(time.Hour)) // leads until the end
	var p weak.Pointer[request]
	func() {
		v := &request{}
		p = weak.Make(v)
		if _, err := r.RunTaskOnLeader(context.WithValue(t.Context(), key{}, v), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}()
	for end := time.Now().Add(20 * time.Second); p.Value() != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
	}
	if p.Value() != nil {
		t.Error("the first call is over, and its context's values stay as long as the leadership")
	}
	if !r.IsLeader() {
		t.Error("the leadership has ended")
	}
	_ = r.Close(t.Context())
}

// mustRun calls RunTaskOnLeader and checks whether it ran.
func mustRun(tb testing.TB, r *holdfast.LeaderAwareRunner, fn locktest.Task, want bool) {
	tb.Helper()
	if ran, err := r.RunTaskOnLeader(context.Background(), fn); ran != want || err != nil {
		tb.Errorf("RunTaskOnLeader: %v, %v; want %v, nil", ran, err, want)
	}
}

// Of five instances that call every few seconds, one leads as long as it calls.
func TestRunTaskOnLeader_OneLeaderStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := locktest.NewExclusive(t)
		var mu sync.Mutex
		ran := map[int]int{}
		tokens := map[uint64]int{}
		var wg sync.WaitGroup
		backend := locktest.NewFaulty(t, store.Locker(), nil)
		for i := range 5 {
			r := locktest.NewRunner(t, locktest.FaultyClient(t, backend, nil))
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				calls := 400
				if i == 0 {
					calls = 100 // the first leader stops calling
				}
				for range calls {
					_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						mu.Lock()
						defer mu.Unlock()
						ran[i]++
						if tokens[token]++; tokens[token] == 1 {
							check.Enter(ctx, "job", token)
						}
						return nil
					})
					if err != nil {
						t.Errorf("RunTaskOnLeader: %v", err)
					}
					time.Sleep(3 * time.Second)
				}
			})
		}
		wg.Wait()
		if len(tokens) != 2 || len(ran) != 2 || ran[0] != 100 {
			t.Errorf("runs by instance %v, by token %v; want two leaders, one after the other", ran, tokens)
		}
	})
}

func TestRunTaskOnLeader_IdleLimit(t *testing.T) {
	const ttl = 30 * time.Second
	for name, tc := range map[string]struct {
		opts []holdfast.RunnerOption
		want time.Duration
	}{
		"default":      {nil, 2 * ttl},
		"given":        {[]holdfast.RunnerOption{holdfast.WithIdleLimit(7 * time.Second)}, 7 * time.Second},
		"minimum hold": {[]holdfast.RunnerOption{holdfast.WithIdleLimit(time.Second), holdfast.WithMinHold(45 * time.Second)}, 44 * time.Second},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			r := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()), tc.opts...)
			for range 3 {
				mustRun(t, r, func(context.Context) error { time.Sleep(time.Second); return nil }, true)
				time.Sleep(tc.want - time.Millisecond)
				if !r.IsLeader() || !locktest.IsHeld(t, store, "job") {
					t.Error("leadership was not kept between calls")
				}
				if len(tc.opts) == 2 {
					break // the minimum hold counts from the acquisition, not from the call
				}
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if r.IsLeader() || locktest.IsHeld(t, store, "job") {
				t.Error("not released at the idle limit")
			}
			time.Sleep(time.Hour)
			mustRun(t, r, func(ctx context.Context) error {
				time.Sleep(2 * tc.want) // the idle limit is not for a task that runs
				return ctx.Err()
			}, true)
		})
	}
}

// Close releases a lock that is kept between calls, and waits for that.
func TestRunTaskOnLeader_CloseBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		slow := locktest.Each(locktest.OpRelease, locktest.Fault{Delay: time.Second})
		r := locktest.NewRunner(t, locktest.FaultyClient(t, store.Locker(), slow))
		mustRun(t, r, locktest.EmptyTask, true)
		time.Sleep(time.Second)
		if err := r.Close(locktest.Ended()); err != nil { // nothing is running: even a context that has ended will do
			t.Errorf("Close: %v", err)
		}
		if locktest.IsHeld(t, store, "job") {
			t.Error("held after Close")
		}
		if ran, err := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask); ran || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("RunTaskOnLeader after Close: %v, %v", ran, err)
		}
		if err := r.Run(t.Context(), locktest.EmptyTask); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run after Close: %v", err)
		}
	})
}

// A task that has begun when Close is called decides the result of its call.
func TestRunTaskOnLeader_CloseDuringTheTask(t *testing.T) {
	for _, want := range []error{nil, locktest.ErrInjected} {
		synctest.Test(t, func(t *testing.T) {
			r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
			closed := make(chan error, 1)
			ran, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error {
				go func() { closed <- r.Close(context.Background()) }()
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), holdfast.ErrClosed) {
					t.Errorf("the task's context ended with %v", context.Cause(ctx))
				}
				return want
			})
			if !ran || !errors.Is(err, want) || errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("RunTaskOnLeader: %v, %v; want the task's result %v", ran, err, want)
			}
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// A call during the release of the lock waits, and then leads again.
func TestRunTaskOnLeader_CallDuringTheRelease(t *testing.T) {
	for _, mode := range []string{"RunTaskOnLeader", "Run"} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRelease, locktest.Fault{Delay: time.Second}))
			r := locktest.NewRunner(t, locktest.NewClient(t, f), holdfast.WithIdleLimit(5*time.Second))
			mustRun(t, r, locktest.EmptyTask, true)
			time.Sleep(5*time.Second + time.Second/2)
			if mode == "Run" {
				if err := r.Run(t.Context(), locktest.EmptyTask); err != nil {
					t.Errorf("Run: %v", err)
				}
			} else {
				mustRun(t, r, locktest.EmptyTask, true)
			}
			if n := f.Count(locktest.OpAcquire); n != 2 {
				t.Errorf("%d requests, want one for each leadership", n)
			}
		})
	}
}

func TestRunTaskOnLeader_ResultsOfTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var failing atomic.Bool
		r := locktest.NewRunner(t, locktest.FaultyClient(t, store.Locker(),
			locktest.EachWhile(locktest.OpRenew, &failing, locktest.Fault{Refuse: locktest.ErrInjected})))
		other := locktest.NewRunner(t, locktest.NewClient(t, store.Locker()))
		call := func(fn locktest.Task, want error) {
			t.Helper()
			ran, err := r.RunTaskOnLeader(t.Context(), fn)
			if !ran || !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("RunTaskOnLeader: %v, %v; want true, %v", ran, err, want)
			}
		}
		call(locktest.EmptyTask, nil)
		call(func(context.Context) error { return locktest.ErrTask }, locktest.ErrTask)
		if !r.IsLeader() {
			t.Error("a task's error cost it leadership")
		}
		mustRun(t, other, locktest.EmptyTask, false)
		failing.Store(true)
		for _, result := range []error{nil, locktest.ErrTask} {
			lost := func(ctx context.Context) error { <-ctx.Done(); return result }
			call(lost, holdfast.ErrLost)
			if r.IsLeader() || locktest.IsHeld(t, store, "job") {
				t.Error("not released after a loss")
			}
			if result != nil {
				call(lost, locktest.ErrTask)
			}
		}
		failing.Store(false)
		mustRun(t, other, locktest.EmptyTask, true)
	})
}

// Run resumes the leadership that RunTaskOnLeader kept.
func TestRun_ResumesLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		r := locktest.NewRunner(t, locktest.NewClient(t, f))
		var first, second uint64
		ctx := context.WithValue(t.Context(), key{}, "first")
		if _, err := r.RunTaskOnLeader(ctx, func(ctx context.Context) error {
			first, _ = holdfast.TokenFromContext(ctx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := r.Run(t.Context(), func(ctx context.Context) error {
			second, _ = holdfast.TokenFromContext(ctx)
			if ctx.Value(key{}) != nil {
				t.Error("a task has the values of another call's context")
			}
			return nil
		}); err != nil {
			t.Errorf("Run: %v", err)
		}
		if first != second || f.Count(locktest.OpAcquire) != 1 {
			t.Errorf("tokens %d and %d with %d requests, want one leadership", first, second, f.Count(locktest.OpAcquire))
		}
		if locktest.IsHeld(t, store, "job") {
			t.Error("held after Run")
		}
	})
}

// A dead holder's lock is not stuck for an instance that never waits (promise 10).
func TestRunTaskOnLeader_NoLockIsStuck(t *testing.T) {
	for name, faults := range map[string]func(op string, n int, _ holdfast.Lease) locktest.Fault{
		"no failures": nil,
		"with failures": func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if n%3 == 2 {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			var ahead atomic.Int64
			store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
			ahead.Store(int64(24 * time.Hour)) // the server's clock was a day ahead
			dead := store.Locker()
			if _, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), Owner: "dead",
				TTL: 20 * time.Second}); err != nil {
				t.Fatal(err)
			}
			ahead.Store(0)
			var seen locktest.Events
			r := locktest.NewRunner(t, locktest.FaultyClient(t, store.Locker(), faults), holdfast.WithObserver(seen.Observe))
			start := time.Now()
			for ran := false; !ran && time.Since(start) < time.Minute; time.Sleep(3 * time.Second) {
				ran, _ = r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
			}
			if d := time.Since(start); !r.IsLeader() || d < 20*time.Second || d > 30*time.Second {
				t.Errorf("leads %v after %v, want one TTL of the dead holder", r.IsLeader(), d)
			}
			if n := seen.Count(holdfast.EventHolderSeen); n != 1 {
				t.Errorf("the other holder was reported %d times, want once", n)
			}
		})
	}
}
