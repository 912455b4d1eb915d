package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/retry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A backend that fails for less than the leases last changes nothing.
func TestPartitionsOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 30, 4, 2*time.Second)
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
		reported := 0 // a read comes about every 5 s: an instance may have none in an outage of 4 s
		for _, in := range f.Live {
			reported += in.Events.Failures("inspect")
		}
		if reported < 3 {
			t.Errorf("%d failed reads reported", reported)
		}
		// A longer outage costs every lease. Afterwards the work is spread again.
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

// When requests for partitions fail, a backoff begins: no request is sent for each partition.
func TestPartitionsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, atOnce = 500, 16
		f := locktest.NewFleet(t, n)
		in := f.Join(func(s *locktest.Link) { s.NoPartitions.Store(true) })
		time.Sleep(time.Minute)
		reads, attempts := in.Link.GroupReads.Load(), in.Link.Attempts.Load()
		if attempts < 100 || attempts > 40*atOnce || reads > 120 { // after half a second at first, up to 2.5 s
			t.Errorf("%d attempts after %d reads in a minute", attempts, reads)
		}
		in.Link.NoPartitions.Store(false)
		f.UntilEven(10 * time.Second)
		f.End()
	})
}

// With a migrating.Locker, the locks of programs with the old lock alone are read as free, and attempts at them are refused. Each is asked
// for at about every read, no more often, and those that become free are acquired soon.
func TestPartitionsHeldByTheOldLockAlone(t *testing.T) {
	const n = 100
	for what, c := range map[string]struct {
		name  string
		owned int // when half of the locks are released
	}{
		"partitions":   {"group/partition-%04d", n / 2},
		"member locks": {"group/partition-member-%04d", n},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			f := locktest.NewFleet(t, n)
			old := memory.NewStore().Locker()
			leases := make([]driver.Lease, n)
			for i := range leases {
				name := fmt.Sprintf(c.name, i)
				lease, err := old.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID(name), TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				leases[i] = lease
			}
			in := f.Join(func(s *locktest.Link) {
				both, err := migrating.New(s.Locker, migrating.FromLocker(old))
				if err != nil {
					t.Fatal(err)
				}
				s.Locker = both
			})
			time.Sleep(time.Minute)
			attempts, reads := in.Link.Attempts.Load(), in.Link.GroupReads.Load()
			time.Sleep(10 * time.Minute)
			attempts, reads = in.Link.Attempts.Load()-attempts, in.Link.GroupReads.Load()-reads
			if attempts < 60*n || attempts > 160*n || reads > 800 { // every 3.75 s to 10 s
				t.Errorf("%d attempts and %d reads in ten minutes", attempts, reads)
			}
			for _, step := range []struct {
				release []driver.Lease
				owned   int
			}{{leases[:n/2], c.owned}, {leases[n/2:], n}} {
				for _, lease := range step.release {
					if err := old.Release(t.Context(), lease); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(12 * time.Second)
				if got := len(in.Owned()); got != step.owned {
					t.Errorf("%d owned, want %d", got, step.owned)
				}
			}
			f.End()
		})
	}
}

// Failed attempts at partitions are reported and repeated, whatever the failure is.
func TestPartitionsAttemptsFail(t *testing.T) {
	for name, failure := range map[string]error{"transient": locktest.ErrInjected, "damaged": driver.Damaged(locktest.ErrInjected),
		"invalid": driver.Invalid("index", "foreign", "ours")} {
		locktest.Bubble(t, name, func(t *testing.T) { attemptsFail(t, failure) })
	}
}

func attemptsFail(t *testing.T, failure error) {
	store := memory.NewStore()
	var mu sync.Mutex
	refused := map[string]int{}
	l := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, lease holdfast.Lease) locktest.Fault {
		mu.Lock()
		defer mu.Unlock()
		name := lease.Name
		if strings.Contains(name, "member") {
			name = "member" // an instance tries any of them
		}
		if op == locktest.OpAcquire && refused[name] < 3 {
			refused[name]++
			return locktest.Fault{Refuse: failure}
		}
		return locktest.Fault{}
	})
	var seen locktest.Events
	_, stop := locktest.RunPartitions(t, locktest.NewClient(t, l), 40, locktest.WorkUntilCanceled, holdfast.WithObserver(seen.Observe))
	if seen.Count(holdfast.EventError) < 3*41 {
		t.Errorf("%d errors reported", seen.Count(holdfast.EventError))
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Reads that fail for half of the records, in one instance or in all, move nothing.
func TestPartitionsPartlyFailedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 31, 4, 2*time.Second)
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

// A store without a batch read is asked for the records one after another, 16 at a time, and is always so slow that a call ends at its
// time limit among the partitions or among the member locks. Every instance reads all of them nevertheless.
func TestPartitionsSlowStore(t *testing.T) {
	for _, each := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond} {
		locktest.Bubble(t, each.String(), func(t *testing.T) {
			f := locktest.NewFleet(t, 64)
			slow := func(s *locktest.Link) {
				s.Locker = driver.Intercept(s.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					a := next(ctx, call)
					for i := range a.Errs {
						if i%16 == 0 {
							retry.Wait(ctx, each)
						}
						if call.Method == driver.MethodInspectBatch && ctx.Err() != nil {
							a.Records[i], a.Errs[i] = holdfast.Record{}, ctx.Err()
						}
					}
					return a
				})
			}
			f.Join(slow)
			f.UntilEven(30 * time.Second)
			f.Join(slow)
			f.Join(slow)
			t.Log("even after", f.UntilEven(time.Minute))
			f.End()
		})
	}
}

// An instance that can read none of the member locks does not stand by: other members may be alive, so what is free is not its to take.
// Damaged ones cannot be acquired: then it does.
func TestPartitionsUnreadMembersAreNotTaken(t *testing.T) {
	for err, want := range map[error]int{context.DeadlineExceeded: 0, driver.ErrDamaged: 6} {
		locktest.Bubble(t, err.Error(), func(t *testing.T) {
			f := locktest.EvenFleet(t, 6, 1, 3*time.Second)
			var unread atomic.Bool
			unread.Store(true)
			two := f.Join(func(s *locktest.Link) {
				s.Locker = driver.Intercept(s.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					a := next(ctx, call)
					for i, name := range call.Names {
						if call.Method == driver.MethodInspectBatch && unread.Load() && strings.Contains(name, "member") {
							a.Records[i], a.Errs[i] = holdfast.Record{}, err
						}
					}
					return a
				})
			})
			f.Kill(f.Live[0])
			time.Sleep(time.Minute)
			if owned := two.Owned(); len(owned) != want {
				t.Errorf("owned without a member lock: %v", owned)
			}
			unread.Store(false)
			f.UntilEven(15 * time.Second)
			f.End()
		})
	}
}

// One read that returns owners of long ago moves nothing.
func TestPartitionsStaleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 9, 4, 3*time.Second) // shares of 3, 2, 2, 2
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
		returned := func() (n int) {
			for _, in := range f.Live {
				n += in.Events.Count(holdfast.EventReleased)
			}
			return n
		}
		before := returned()
		for k, in := range f.Live {
			var lies atomic.Int64
			from, to := names[(k+1)%4], names[(k+2)%4]
			lies.Store(int64(2 * f.N)) // one read
			lie := func(r *holdfast.Record) {
				if lies.Add(-1) >= 0 && r.Owner == from && !strings.Contains(r.Name, "member") {
					r.Owner = to
				}
			}
			in.Link.Change.Store(&lie)
			time.Sleep(15 * time.Second)
		}
		if n := returned() - before; n != 0 || !f.Even() {
			t.Errorf("%d returned, shares of %v", n, f.Shares())
		}
		f.End()
	})
}

// On a backend that never says who owns a partition, partitions that the plan gives to others, which
// have enough, are acquired nevertheless.
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

// On a backend whose batched reads do not contain owners, these are asked for one by one when something
// moves, and from time to time.
func TestPartitionsOwnersAskedFor(t *testing.T) {
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
		time.Sleep(10 * time.Minute) // the others' 18 partitions and 3 member locks, every minute
		if got := f.Live[0].Link.SingleReads.Load() - before; got < 10*15 || got > 10*27 {
			t.Errorf("%d single reads in 10 idle minutes", got)
		}
		f.Kill(f.Live[0])
		f.UntilEven(locktest.FleetTTL + 10*time.Second)
		f.End()
	})
}

// A panic of the driver in a call of Run's own goroutine reaches Run's caller, as runtime.Goexit does. Before, all functions have
// returned and all locks are released, also a member lock that was granted by the call that panicked.
func TestPartitionsDriverPanics(t *testing.T) {
	for _, tc := range []struct {
		method driver.Method
		value  any // nil: Goexit
	}{
		{driver.MethodInspectBatch, "oops"}, {driver.MethodInspectBatch, nil},
		{driver.MethodTryAcquire, "oops"}, {driver.MethodTryAcquire, nil},
	} {
		locktest.Bubble(t, fmt.Sprint(tc.method, tc.value), func(t *testing.T) {
			store := memory.NewStore()
			var oops atomic.Bool
			c := locktest.NewClient(t, driver.Intercept(store.Locker(),
				func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					a := next(ctx, call)
					if call.Method == tc.method && oops.CompareAndSwap(true, false) {
						if tc.value == nil {
							runtime.Goexit()
						}
						panic(tc.value)
					}
					return a
				}))
			p, err := partitions.New(c, "group", 4, locktest.WorkUntilCanceled)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan any, 1)
			run := func() {
				defer func() { ended <- recover() }()
				t.Errorf("Run returned %v", p.Run(ctx))
			}
			if tc.method == driver.MethodTryAcquire {
				oops.Store(true) // the first request is for a member lock
				go run()
			} else {
				go run()
				time.Sleep(time.Minute)
				if len(p.Owned()) != 4 {
					t.Errorf("%d owned", len(p.Owned()))
				}
				oops.Store(true)
			}
			time.Sleep(10 * time.Second)
			select {
			case v := <-ended:
				if v != tc.value {
					t.Errorf("recovered %v", v)
				}
			default:
				t.Errorf("Run goes on; %d partitions owned", len(p.Owned()))
				cancel()
				<-ended
			}
			for r, err := range store.Locker().List(t.Context(), "") {
				if err != nil || r.State != driver.StateFree {
					t.Errorf("%v, %v", r, err)
				}
			}
		})
	}
}
