package partitions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A function that fails is called again after a growing backoff; one that returns nil is not called
// again.
func TestPartitionsFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing, done, reported atomic.Int64
		f := locktest.NewFleet(t, 2, partitions.WithRestart(holdfast.Backoff{Initial: time.Second, Max: 4 * time.Second}))
		run := func(_ context.Context, i int) error {
			if i == 0 {
				done.Add(1)
				return nil
			}
			failing.Add(1)
			return locktest.ErrInjected
		}
		observe := func(e holdfast.Event) {
			if e.Type == holdfast.EventError && e.Op == "task" && errors.Is(e.Err, locktest.ErrInjected) && e.Name == f.Record(1) {
				reported.Add(1)
			}
		}
		p, stop := locktest.RunPartitions(t, locktest.NewClient(t, f.Store.Locker()), 2, run, append(f.Opts, holdfast.WithObserver(observe))...)
		time.Sleep(30 * time.Second) // calls after about 1, 2, 4, 8, 12, … s
		if got := failing.Load(); got < 7 || got > 12 || reported.Load() != got {
			t.Errorf("a failing function was called %d times in 30 s, %d failures reported", got, reported.Load())
		}
		if done.Load() != 1 || !slices.Equal(p.Owned(), []int{0, 1}) {
			t.Errorf("a function that returned nil was called %d times; owned: %v", done.Load(), p.Owned())
		}
		_ = stop()
		if locktest.IsHeld(t, f.Store, f.Record(0)) || locktest.IsHeld(t, f.Store, f.Record(1)) {
			t.Error("held after Run has returned")
		}
	})
}

// A function's context ends with the right cause, and the lock is released only after the function has
// returned.
func TestPartitionsCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 4)
		causes := make(chan error, 16)
		f.Work = func(ctx context.Context, i int) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) && !locktest.IsHeld(t, f.Store, f.Record(i)) {
				t.Errorf("partition %d was released before its function returned", i)
			}
			causes <- context.Cause(ctx)
			return nil
		}
		one := f.Join()
		f.UntilEven(3 * time.Second)
		expect := func(n int, want error) {
			t.Helper()
			for range n {
				if got := <-causes; !errors.Is(got, want) {
					t.Errorf("cause %v, want %v", got, want)
				}
			}
		}
		two := f.Join()
		f.UntilEven(locktest.FleetTrial + 3*time.Second)
		expect(2, partitions.ErrReassigned)
		f.Leave(one)
		expect(2, locktest.ErrRunEnded)
		f.UntilEven(3 * time.Second)
		f.Kill(two)
		time.Sleep(locktest.FleetTTL)
		expect(4, holdfast.ErrLost)
		two.Link.Cut.Store(false)
		f.Live = append(f.Live, two)
		f.UntilEven(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := two.Client.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		expect(4, holdfast.ErrClosed)
		if err := <-two.Done; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run returned %v after Shutdown", err)
		}
		for p := range 4 {
			if locktest.IsHeld(t, f.Store, f.Record(p)) {
				t.Errorf("partition %d is held after Shutdown", p)
			}
		}
		if err := two.Run(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run after Shutdown: %v", err)
		}
	})
}

// A function that does not stop when its context ends delays its own partition and no other. No
// instance acquires the partition before the function has returned and the lock is released.
func TestPartitionsSlowFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, slow = 8, 30 * time.Second
		f := locktest.NewFleet(t, n)
		var stopped atomic.Int64
		f.Work = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), partitions.ErrReassigned) && stopped.Add(1) == 1 {
				time.Sleep(slow)
			}
			return context.Cause(ctx)
		}
		one := f.Join()
		f.UntilEven(2 * time.Second)
		two := f.Join()
		time.Sleep(locktest.FleetTrial + 3*time.Second)
		if len(one.Owned()) != 4 || len(two.Owned()) != 3 {
			t.Errorf("shares of %v, want all but one", f.Shares())
		}
		time.Sleep(slow - 4*time.Second)
		for p := range n { // partitions that move are renewed until then
			if !locktest.IsHeld(t, f.Store, f.Record(p)) {
				t.Errorf("partition %d is free", p)
			}
		}
		if len(two.Owned()) != 3 {
			t.Errorf("shares of %v before the slow function returned", f.Shares())
		}
		f.UntilEven(5 * time.Second)
		f.End()
	})
}

// When a function goes on after its lease has ended, another instance acquires the partition at the
// expiry, not before, and the overrun is reported.
func TestPartitionsOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 2)
		stop := make(chan struct{})
		f.Work = func(context.Context, int) error { <-stop; return nil }
		one := f.Join()
		f.UntilEven(2 * time.Second)
		f.Join()
		f.Kill(one)
		time.Sleep(locktest.FleetTTL - 4*time.Second)
		if got := len(f.Live[0].Owned()); got != 0 {
			t.Errorf("%d partitions acquired before their leases can have expired", got)
		}
		f.UntilEven(locktest.FleetTTL)
		if got := one.Events.Count(holdfast.EventOverrun); got == 0 {
			t.Error("no overrun reported")
		}
		close(stop)
		f.End()
	})
}

// Functions that return at once after a loss, or when Run's context ends, are no overruns, also if more partitions than may be
// released at once wait for their releases in an outage. Without one, an instance that leaves has a limited number of releases under way.
func TestPartitionsFuncsThatStopInTimeAreNoOverruns(t *testing.T) {
	for name, tc := range map[string]struct{ outage, leave bool }{
		"lost": {true, false}, "Run ends in an outage": {true, true}, "Run ends": {false, true},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			const n, most = 400, 64
			var down atomic.Bool
			var events locktest.Events
			gauge := locktest.NewCallGauge(memory.New(), 10*time.Millisecond)
			c := locktest.FaultyClient(t, gauge, locktest.While(&down, locktest.Fault{Hang: true}))
			_, stop := locktest.RunPartitions(t, c, n, locktest.WorkUntilCanceled, holdfast.WithObserver(events.Observe))
			down.Store(tc.outage)
			if tc.leave {
				go func() { _ = stop() }()
			}
			time.Sleep(time.Minute)
			if lost := events.Count(holdfast.EventLost); !tc.leave && lost != n+1 { // and the member lock
				t.Errorf("%d lost", lost)
			}
			if over := events.Count(holdfast.EventOverrun); over != 0 {
				t.Errorf("%d overruns", over)
			}
			if got := gauge.Highest(driver.MethodRelease); !tc.outage && (got < most || got > most+1) { // and that of the member lock
				t.Errorf("%d releases at once, want %d", got, most)
			}
			down.Store(false)
			if !tc.leave {
				t.Logf("Run returned %v", stop())
			}
		})
	}
}

// slowRelease makes answers to releases of partitions come late.
type slowRelease struct {
	delay     time.Duration
	releasing atomic.Int64
	taken     atomic.Int64 // attempts at that partition during the release
	partition atomic.Pointer[string]
}

func (s *slowRelease) intercept(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	name := call.Concerned().Name
	if slow := s.partition.Load(); call.Method == driver.MethodTryAcquire && slow != nil && *slow == name && s.releasing.Load() > 0 {
		s.taken.Add(1)
	}
	a := next(ctx, call)
	if call.Method != driver.MethodRelease || strings.Contains(name, "member") || strings.Contains(name, "notice") {
		return a
	}
	if s.partition.CompareAndSwap(nil, &name) {
		s.releasing.Add(1)
		defer s.releasing.Add(-1)
		time.Sleep(s.delay)
	}
	return a
}

// A partition that is being released is not acquired again before the release has returned, even if
// it is seen free during it.
func TestPartitionsNotAcquiredWhileBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 4)
		slow := &slowRelease{delay: 3 * time.Second} // Finish waits for a third of the TTL
		f.Join(func(s *locktest.Link) { s.Locker = driver.Intercept(s.Locker, slow.intercept) })
		f.UntilEven(2 * time.Second)
		two := f.Join(func(s *locktest.Link) { s.NoPartitions.Store(true) }) // it never acquires a free one
		for slow.releasing.Load() == 0 {                                     // the first returns its surplus
			time.Sleep(10 * time.Millisecond)
		}
		f.Leave(two)
		f.UntilEven(10 * time.Second)
		if n := slow.taken.Load(); n != 0 {
			t.Errorf("%d attempts at a partition that was being released", n)
		}
		f.End()
	})
}
