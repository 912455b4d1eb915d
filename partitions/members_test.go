package partitions_test

import (
	"context"
	"fmt"
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

// Of more instances than partitions, the others stand by and replace members that leave or die.
func TestPartitionsStandBy(t *testing.T) {
	for _, n := range []int{1, 3, 3, 3, 3, 3} { // the order of acquisition is random
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, n)
			for range n + 2 {
				f.Join()
			}
			time.Sleep(20 * time.Second)
			owners := slices.DeleteFunc(slices.Clone(f.Live), func(in *locktest.Instance) bool { return len(in.Owned()) == 0 })
			if len(owners) != n || !f.OneEach() {
				t.Fatalf("n=%d: shares of %v", n, f.Shares())
			}
			f.TakeMoves()
			f.Leave(owners[0])
			time.Sleep(3 * time.Second)
			if m := f.TakeMoves(); !f.OneEach() || m != 1 {
				t.Errorf("n=%d, one left: shares of %v, %d moves", n, f.Shares(), m)
			}
			for _, in := range slices.Clone(f.Live) {
				if len(in.Owned()) > 0 {
					f.Kill(in)
					break
				}
			}
			time.Sleep(locktest.FleetTTL + 8*time.Second)
			if m := f.TakeMoves(); !f.OneEach() || m != 1 {
				t.Errorf("n=%d, one died: shares of %v, %d moves", n, f.Shares(), m)
			}
			f.End()
		})
	}
}

// An instance that loses its member lock acquires another one; its partitions stay.
func TestPartitionsMemberLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 12, 3, 2*time.Second)
		f.TakeMoves()
		l := f.Store.Locker()
		for r, err := range l.List(t.Context(), "group/partition-member-") {
			if err != nil {
				t.Fatal(err)
			}
			if r.State == driver.StateHeld {
				if err := l.BreakNow(t.Context(), r.Name, driver.BreakAnybody()); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(2 * locktest.FleetTTL)
		members := 0
		for r, err := range l.List(t.Context(), "group/partition-member-") {
			if err == nil && r.State == driver.StateHeld {
				members++
			}
		}
		if m := f.TakeMoves(); m != 0 || members != 3 || !f.Even() {
			t.Errorf("%d moves, %d members, shares of %v", m, members, f.Shares())
		}
		f.End()
	})
}

// An instance that has lost its member lock and cannot acquire another one yet keeps its partitions,
// although the plan of the members has no share for it.
func TestPartitionsKeptWithoutMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 12, 3, 3*time.Second)
		one := f.Live[0]
		f.TakeMoves()
		one.Link.NoMembership.Store(true)
		for i := range f.N {
			if err := f.Store.Locker().BreakNow(t.Context(), fmt.Sprintf("group/partition-member-%04d", i), driver.BreakAnybody()); err != nil {
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

// When an instance that stood by acquires the member lock of another one, that returns its partitions.
func TestPartitionsMembershipTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 1, 1, 3*time.Second)
		one := f.Live[0]
		two := f.Join()
		time.Sleep(3 * time.Second)
		l := f.Store.Locker()
		if err := l.BreakNow(t.Context(), "group/partition-member-0000", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if len(one.Owned()) != 0 || len(two.Owned()) != 1 {
			t.Errorf("shares of %v", f.Shares())
		}
		f.End()
	})
}

// A member lock that is lost in an outage has no work that could overrun, so no overrun is reported.
func TestPartitionsLostMembershipIsNoOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 3, 1, 3*time.Second)
		in := f.Live[0]
		in.Link.Cut.Store(true)
		time.Sleep(3 * locktest.FleetTTL)
		in.Events.Mu.Lock()
		lost := 0
		for _, e := range in.Events.List {
			if e.Type == holdfast.EventOverrun {
				t.Errorf("reported: %v", e)
			}
			if e.Type == holdfast.EventLost && strings.Contains(e.Name, "member") {
				lost++
			}
		}
		in.Events.Mu.Unlock()
		if lost != 1 {
			t.Errorf("the member lock was lost %d times", lost)
		}
		in.Link.Cut.Store(false)
		f.UntilEven(20 * time.Second)
		f.End()
	})
}

// Neither a member lock nor a partition whose function has returned nil has work that could overrun, also not after a pause.
func TestPartitionsWithoutWorkReportNoOverrunAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var paused atomic.Int64
		var events locktest.Events
		c := locktest.NewClient(t, memory.New(),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(paused.Load()) }))
		p, err := partitions.New(c, "group", 2, func(context.Context, int) error { return nil }, holdfast.WithObserver(events.Observe))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(30 * time.Second)
		if len(p.Owned()) != 2 {
			t.Fatalf("%d owned", len(p.Owned()))
		}
		paused.Store(int64(time.Hour))
		time.Sleep(10 * time.Second)
		if lost, over := events.Count(holdfast.EventLost), events.Count(holdfast.EventOverrun); lost != 3 || over != 0 {
			t.Errorf("%d losses, %d overruns", lost, over)
		}
		cancel()
		t.Logf("Run returned %v", <-done)
	})
}

// A member whose TTL is longer than the others' gets its share, also where no Watcher wakes them.
func TestPartitionsTTLsThatDiffer(t *testing.T) {
	for _, without := range []string{"", "watch"} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, 60)
			prepare := func(s *locktest.Link) { s.Without = without }
			f.Opts = []partitions.Option{holdfast.WithTTL(3 * time.Second)}
			f.Join(prepare)
			f.Join(prepare)
			f.UntilEven(10 * time.Second)
			f.Opts = []partitions.Option{holdfast.WithTTL(30 * time.Second)}
			f.Join(prepare)
			time.Sleep(5 * time.Minute)
			if !f.Even() {
				t.Errorf("without %q the shares are %v", without, f.Shares())
			}
			f.End()
		})
	}
}

// While many instances join one after another, free partitions are acquired nevertheless.
func TestPartitionsFreeOnesDoNotWaitForJoins(t *testing.T) {
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
			t.Errorf("%d of %d partitions owned while instances join: %v", total, f.N, f.Shares())
		}
		f.UntilEven(10 * time.Second)
		f.End()
	})
}
