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

// An instance that loses its member lock acquires another one; its partitions stay. So they do while it cannot acquire one, although
// the plan of the members has no share for it.
func TestPartitionsMemberLost(t *testing.T) {
	for _, cannot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := locktest.EvenFleet(t, 12, 3, 3*time.Second)
			one := f.Live[0]
			f.TakeMoves()
			one.Link.NoMembership.Store(cannot)
			seconds := 60
			if !cannot {
				seconds = 20 // two TTLs: it has another by then
			}
			for i := range f.N {
				locktest.Break(t, f.Store, fmt.Sprintf("group/partition-member-%04d", i))
			}
			for range seconds {
				if time.Sleep(time.Second); len(one.Owned()) != 4 {
					t.Fatalf("cannot acquire another: %v: shares of %v", cannot, f.Shares())
				}
			}
			if one.Link.NoMembership.Swap(false) {
				time.Sleep(time.Minute)
			}
			members := 0
			for r, err := range f.Store.Locker().List(t.Context(), "group/partition-member-") {
				if err == nil && r.State == driver.StateHeld {
					members++
				}
			}
			if m := f.TakeMoves(); m != 0 || members != 3 || !f.Even() {
				t.Errorf("cannot acquire another for a minute: %v: %d moves, %d members, shares of %v", cannot, m, members, f.Shares())
			}
			f.End()
		})
	}
}

// When an instance that stood by acquires the member lock of another one, that returns its partitions.
func TestPartitionsMembershipTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 1, 1, 3*time.Second)
		one := f.Live[0]
		two := f.Join()
		time.Sleep(3 * time.Second)
		locktest.Break(t, f.Store, "group/partition-member-0000")
		time.Sleep(15 * time.Second)
		if len(one.Owned()) != 0 || len(two.Owned()) != 1 {
			t.Errorf("shares of %v", f.Shares())
		}
		f.End()
	})
}

// Neither a member lock that is lost, in an outage or in a pause, nor a partition whose function has returned nil has work that could
// overrun, so no overrun is reported.
func TestPartitionsLostMembershipIsNoOverrun(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			var events locktest.Events
			c, pause := locktest.PausableClient(t, locktest.NewFaulty(t, memory.New(), locktest.While(&down, locktest.Fault{Hang: true})))
			fn := locktest.WorkUntilCanceled
			if paused {
				fn = func(context.Context, int) error { return nil }
			}
			p, stop := locktest.RunPartitions(t, c, 2, fn, holdfast.WithTTL(locktest.FleetTTL), holdfast.WithObserver(events.Observe))
			if time.Sleep(3 * locktest.FleetTTL); paused {
				pause(time.Hour)
				time.Sleep(10 * time.Second)
			} else {
				down.Store(true)
				time.Sleep(3 * locktest.FleetTTL)
			}
			events.Mu.Lock()
			members := 0
			for _, e := range events.List {
				if e.Type == holdfast.EventLost && strings.Contains(e.Name, "member") {
					members++
				}
			}
			events.Mu.Unlock()
			if lost, over := events.Count(holdfast.EventLost), events.Count(holdfast.EventOverrun); members != 1 || lost != 3 || over != 0 {
				t.Errorf("paused: %v: %d losses, %d of them of the member lock, %d overruns", paused, lost, members, over)
			}
			down.Store(false)
			if time.Sleep(20 * time.Second); len(p.Owned()) != 2 {
				t.Errorf("paused: %v: %d owned afterwards", paused, len(p.Owned()))
			}
			t.Logf("Run returned %v", stop())
		})
	}
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
