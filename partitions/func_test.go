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
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/partitions"
)

// A function that fails is called again, later each time, while its partition stays;
// one that returns nil is not.
func TestPartitionsFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing, done, told atomic.Int64
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
				told.Add(1)
			}
		}
		p, err := partitions.New(locktest.NewClient(t, f.Store.Locker()), "group", 2, run, append(f.Opts, holdfast.WithObserver(observe))...)
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Run(ctx); close(stop) }()
		time.Sleep(30 * time.Second) // calls after about 1, 2, 4, 8, 12, … s
		if got := failing.Load(); got < 7 || got > 12 || told.Load() != got {
			t.Errorf("a failing function was called %d times in 30 s, %d failures told", got, told.Load())
		}
		if done.Load() != 1 || !slices.Equal(p.Owned(), []int{0, 1}) {
			t.Errorf("a function that returned nil was called %d times; owned: %v", done.Load(), p.Owned())
		}
		cancel()
		<-stop
		if locktest.IsHeld(t, f.Store, f.Record(0)) || locktest.IsHeld(t, f.Store, f.Record(1)) {
			t.Error("held after Run has returned")
		}
	})
}

// What ends a function's context, and that the lock is released after it.
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

// One Run at a time, and another after it; no goroutine, lock or place is left.
func TestPartitionsRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 3)
		in := f.Join()
		f.UntilEven(3 * time.Second)
		if err := in.Run(t.Context()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a second Run: %v", err)
		}
		f.Leave(in)
		if in.Owned() != nil {
			t.Errorf("owned after Run: %v", in.Owned())
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { in.Done <- in.Run(ctx) }()
		f.Live = append(f.Live, in)
		f.UntilEven(3 * time.Second)
		cancel()
		if err := <-in.Done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		l := f.Store.Locker()
		for r, err := range l.List(t.Context(), "") {
			if err != nil || r.State != driver.StateFree {
				t.Errorf("%q is %v, owner %q, %v", r.Name, r.State, r.Owner, err)
			}
			if r.Name != "group/partition-bell" && !strings.Contains(r.Owner, "#") {
				t.Errorf("the owner of %q was %q", r.Name, r.Owner)
			}
		}
		synctest.Wait() // until all is told
		if got := in.Events.Count(holdfast.EventAcquired); got != 8 || in.Events.Count(holdfast.EventReleased) != 8 {
			t.Errorf("%d acquired, %d released; want 2 places and 6 partitions", got, in.Events.Count(holdfast.EventReleased))
		}
	})
}

// What was taken last is given back first: an instance that is restarted, again and
// again, has the same partitions stop and start, and no others.
func TestPartitionsLastTakenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 16)
		one := f.Join()
		f.UntilEven(3 * time.Second)
		var moving []int
		for range 3 {
			two := f.Join()
			f.UntilEven(locktest.FleetTrial + 3*time.Second)
			if moving != nil && !slices.Equal(moving, two.Owned()) {
				t.Errorf("%v moved before, now %v", moving, two.Owned())
			}
			moving = two.Owned()
			f.Leave(two)
			f.UntilEven(3 * time.Second)
		}
		f.Leave(one)
	})
}

// An instance whose place among the members is taken by one that stood by makes way.
func TestPartitionsPlaceTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 1)
		one := f.Join()
		f.UntilEven(3 * time.Second)
		two := f.Join()
		time.Sleep(3 * time.Second)
		l := f.Store.Locker()
		if err := l.BreakNow(t.Context(), "group/partition-member-0000"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if len(one.Owned()) != 0 || len(two.Owned()) != 1 {
			t.Errorf("shares of %v", f.Shares())
		}
		f.End()
	})
}

func TestPartitionsInvalid(t *testing.T) {
	c, err := holdfast.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Shutdown(context.Background())
	for _, x := range []struct {
		field string
		c     *holdfast.Client
		group string
		n     int
		fn    func(context.Context, int) error
		opts  []partitions.Option
	}{
		{"client", nil, "g", 1, locktest.WorkUntilCanceled, nil},
		{"group", c, "", 1, locktest.WorkUntilCanceled, nil},
		{"n", c, "g", 0, locktest.WorkUntilCanceled, nil},
		{"n", c, "g", 10_001, locktest.WorkUntilCanceled, nil},
		{"fn", c, "g", 1, nil, nil},
		{"Name", c, strings.Repeat("g", 1010), 1, locktest.WorkUntilCanceled, nil},
		{"Owner", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithOwner(strings.Repeat("o", 1012))}},
		{"option", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{nil}},
		{"observer", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithObserver(nil)}},
		{"RebalanceEvery", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{partitions.WithRebalanceEvery(0)}},
		{"Backoff", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{partitions.WithRestart(holdfast.Backoff{})}},
		{"TTL", c, "g", 1, locktest.WorkUntilCanceled, []partitions.Option{holdfast.WithTTL(-1)}},
	} {
		_, err := partitions.New(x.c, x.group, x.n, x.fn, x.opts...)
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != x.field {
			t.Errorf("%s: got %v", x.field, err)
		}
	}
	p, err := partitions.New(c, strings.Repeat("g", 1000), 10_000, locktest.WorkUntilCanceled, holdfast.WithOwner(strings.Repeat("o", 1011)))
	if err != nil || p.Owned() != nil {
		t.Errorf("the longest names: %v, %v", p, err)
	}
}
