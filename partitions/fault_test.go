package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// A function that does not stop when told to delays its own partition and no other:
// nobody takes it before it has returned and the lock is released.
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
		for p := range n { // what is being given back is renewed until then
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

// A function that goes on after its lease has ended: another takes the partition at
// the expiry, never before, and the overrun is told.
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
			t.Errorf("%d partitions taken before their leases can have expired", got)
		}
		f.UntilEven(locktest.FleetTTL)
		if got := one.Events.Count(holdfast.EventOverrun); got == 0 {
			t.Error("no overrun told")
		}
		close(stop)
		f.End()
	})
}

// A backend that is away for less than the leases last changes nothing.
func TestPartitionsOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 30)
		for range 4 {
			f.Join()
		}
		f.UntilEven(2 * time.Second)
		before := f.Ownership()
		f.TakeMoves()
		for range 3 {
			for _, in := range f.Live {
				in.Link.Cut.Store(true)
			}
			time.Sleep(4 * time.Second)
			for _, in := range f.Live {
				in.Link.Cut.Store(false)
			}
			time.Sleep(10 * time.Second)
		}
		if m := f.TakeMoves(); m != 0 || !slices.EqualFunc(before, f.Ownership(), slices.Equal) {
			t.Errorf("%d moves: %v, then %v", m, before, f.Ownership())
		}
		told := 0 // a look comes every 5 s or so: an instance may have none in an outage of 4 s
		for _, in := range f.Live {
			told += in.Events.Failures("inspect")
		}
		if told < 3 {
			t.Errorf("%d failed looks told", told)
		}
		// A longer one costs every lease. Then the work is spread again.
		for _, in := range f.Live {
			in.Link.Cut.Store(true)
		}
		time.Sleep(2 * locktest.FleetTTL)
		if got := f.Shares(); slices.Max(got) != 0 {
			t.Errorf("shares of %v after an outage of two TTLs", got)
		}
		for _, in := range f.Live {
			in.Link.Cut.Store(false)
		}
		f.UntilEven(20 * time.Second)
		f.End()
	})
}

// Reads of which a half fails, of one instance or of all, move nothing.
func TestPartitionsTornReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 31)
		for range 4 {
			f.Join()
		}
		f.UntilEven(2 * time.Second)
		f.TakeMoves()
		for range 5 {
			for _, in := range f.Live {
				in.Link.TornReads.Store(1)
			}
			time.Sleep(6 * time.Second)
			f.Live[0].Link.TornReads.Store(1)
			time.Sleep(6 * time.Second)
		}
		if m := f.TakeMoves(); m != 0 || !f.Even() {
			t.Errorf("%d moves, shares of %v", m, f.Shares())
		}
		f.End()
	})
}

// One read that shows owners of long ago moves nothing.
func TestPartitionsStaleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 9) // shares of 3, 2, 2, 2
		for range 4 {
			f.Join()
		}
		f.UntilEven(3 * time.Second)
		time.Sleep(5 * time.Second)
		f.TakeMoves()
		names := make([]string, len(f.Live)) // the owners' texts
		for k, in := range f.Live {
			r, err := in.Client.Inspect(t.Context(), f.Record(in.Owned()[0]))
			if err != nil {
				t.Fatal(err)
			}
			names[k] = r.Owner
		}
		given := func() (n int) {
			for _, in := range f.Live {
				n += in.Events.Count(holdfast.EventReleased)
			}
			return n
		}
		before := given()
		for k, in := range f.Live {
			var lies atomic.Int64
			from, to := names[(k+1)%4], names[(k+2)%4]
			lies.Store(int64(2 * f.N)) // one look
			lie := func(r *holdfast.Record) {
				if lies.Add(-1) >= 0 && r.Owner == from && !strings.Contains(r.Name, "member") {
					r.Owner = to
				}
			}
			in.Link.Change.Store(&lie)
			time.Sleep(15 * time.Second)
		}
		if n := given() - before; n != 0 || !f.Even() {
			t.Errorf("%d given back, shares of %v", n, f.Shares())
		}
		f.End()
	})
}

// What a dead instance held is taken when its leases expire, not at the next look that is
// due anyway.
func TestPartitionsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 20, partitions.WithRebalanceEvery(5*time.Minute))
		for range 3 {
			f.Join()
		}
		f.UntilEven(6 * time.Minute)
		time.Sleep(6 * time.Minute)
		f.Kill(f.Live[0])
		f.UntilEven(locktest.FleetTTL + 7*time.Second) // the least time between looks is 6 s then
		f.End()
	})
}

// A backend that does not tell who owns what, not even to who asks: what is dealt to others,
// who have enough, is taken nevertheless.
func TestPartitionsOwnersUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 24)
		anonymous := func(s *locktest.Link) {
			s.HideOwners = true
			lie := func(r *holdfast.Record) {
				if r.State == driver.StateHeld && !strings.Contains(r.Name, "member") {
					r.Owner = ""
				}
			}
			s.Change.Store(&lie)
		}
		for range 4 {
			f.Join(anonymous)
			f.UntilEven(20 * time.Second)
		}
		f.End()
	})
}

// An instance that loses its place among the members takes another; its partitions
// stay.
func TestPartitionsMemberLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 12)
		for range 3 {
			f.Join()
		}
		f.UntilEven(2 * time.Second)
		f.TakeMoves()
		l := f.Store.Locker()
		for r, err := range l.List(t.Context(), "group/partition-member-") {
			if err != nil {
				t.Fatal(err)
			}
			if r.State == driver.StateHeld {
				if err := l.BreakNow(t.Context(), r.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(2 * locktest.FleetTTL)
		places := 0
		for r, err := range l.List(t.Context(), "group/partition-member-") {
			if err == nil && r.State == driver.StateHeld {
				places++
			}
		}
		if m := f.TakeMoves(); m != 0 || places != 3 || !f.Even() {
			t.Errorf("%d moves, %d places taken, shares of %v", m, places, f.Shares())
		}
		f.End()
	})
}

// An instance that lost its place and cannot get another for now keeps its partitions: the
// plan of the members, which lacks it, is not for it.
func TestPartitionsKeptWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 12)
		one := f.Join()
		f.Join()
		f.Join()
		f.UntilEven(3 * time.Second)
		f.TakeMoves()
		one.Link.NoMembership.Store(true)
		for i := range f.N {
			if err := f.Store.Locker().BreakNow(t.Context(), fmt.Sprintf("group/partition-member-%04d", i)); err != nil {
				t.Fatal(err)
			}
		}
		for range 60 {
			time.Sleep(time.Second)
			if n := len(one.Owned()); n != 4 {
				t.Fatalf("%d partitions are left: %v", n, f.Shares())
			}
		}
		one.Link.NoMembership.Store(false)
		time.Sleep(time.Minute)
		if m := f.TakeMoves(); m != 0 || !f.Even() {
			t.Errorf("%d moves, shares of %v", m, f.Shares())
		}
		f.End()
	})
}

// The server's clock steps back and leaves the expiry of a dead instance's leases a day
// ahead: they are taken over when it has not renewed them for their TTL.
func TestPartitionsClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Int64
		f := locktest.NewFleet(t, 6)
		f.Store = memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }))
		one := f.Join()
		f.Join()
		f.UntilEven(3 * time.Second)
		f.Kill(one)
		back.Store(int64(24 * time.Hour))
		f.UntilEven(2*locktest.FleetTTL + 15*time.Second)
		f.End()
	})
}

// A backend whose batched reads do not tell owners: they are asked for one by one when
// something moves, and now and then.
func TestPartitionsBlankOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 24
		f := locktest.NewFleet(t, n)
		blank := func(s *locktest.Link) { s.HideOwners, s.Without = true, "watch" }
		f.Join(blank)
		f.UntilEven(2 * time.Second)
		f.TakeMoves()
		for range 3 {
			f.Join(blank)
		}
		t.Log("even after", f.UntilEven(20*time.Second))
		if m := f.TakeMoves(); m != n-n/4 {
			t.Errorf("%d moves, want %d", m, n-n/4)
		}
		time.Sleep(10 * time.Second)
		before := f.Live[0].Link.SingleReads.Load()
		time.Sleep(10 * time.Minute) // the others' 18 partitions and 3 places, every minute
		if got := f.Live[0].Link.SingleReads.Load() - before; got < 10*15 || got > 10*27 {
			t.Errorf("%d single reads in 10 idle minutes", got)
		}
		f.Kill(f.Live[0])
		f.UntilEven(locktest.FleetTTL + 10*time.Second)
		f.End()
	})
}

// Many instances that join one after another do not keep what is free from being taken.
func TestPartitionsAreNotKeptWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 40)
		for range 12 {
			f.Join()
			time.Sleep(900 * time.Millisecond)
		}
		total := 0
		for _, n := range f.Shares() {
			total += n
		}
		if total < f.N*3/4 {
			t.Errorf("%d of %d partitions owned while instances come: %v", total, f.N, f.Shares())
		}
		f.UntilEven(10 * time.Second)
		f.End()
	})
}

// Errors of a backend while partitions are taken are told, and no reason to give up.
func TestPartitionsTakingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var mu sync.Mutex
		refused := map[string]int{}
		l := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, lease holdfast.Lease) locktest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if op == locktest.OpAcquire && refused[lease.Name] < 3 {
				refused[lease.Name]++
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		var seen locktest.Events
		p, err := partitions.New(locktest.NewClient(t, l), "g", 40, locktest.WorkUntilCanceled, holdfast.WithObserver(seen.Observe))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		for begin := time.Now(); len(p.Owned()) < 40; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d owned after a minute", len(p.Owned()))
			}
		}
		if seen.Count(holdfast.EventError) < 3*41 {
			t.Errorf("%d errors told", seen.Count(holdfast.EventError))
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
