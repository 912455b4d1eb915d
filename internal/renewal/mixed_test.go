package renewal_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Thousands of leases of minutes, whose batches take their time or hang, cost those of a
// second nothing: neither a place nor the time for an answer.
func TestShortLeasesBesideLongOnes(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"slow": {Delay: 500 * time.Millisecond}, "hung": {Hang: true}, "deaf": {Delay: 20 * time.Second, Refuse: locktest.ErrInjected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
					if leases[0].TTL > time.Second || len(leases) > 3 {
						return ft
					}
					return locktest.Fault{Delay: 10 * time.Millisecond}
				})
				c := locktest.NewClient(t, b)
				lockMany(t, c, 3000, 0, holdfast.WithTTL(10*time.Minute))
				var short []*holdfast.Hold
				for i := range 3 {
					short = append(short, locktest.MustLock(t, c, fmt.Sprint("short ", i), holdfast.WithTTL(time.Second)))
				}
				time.Sleep(5 * time.Minute)
				allHeld(t, short)
				if n, _ := b.sent(); n < 500 {
					t.Errorf("%d batches: the short leases are not renewed together", n)
				}
			})
		})
	}
}

// A batch takes along what is due soon, and nothing else: a lease that is renewed every
// second does not have others renewed every second too.
func TestBatchTakesAlongWhatIsDueSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, nil)
		c := locktest.NewClient(t, b)
		often := []*holdfast.Hold{
			locktest.MustLock(t, c, "often 1", holdfast.WithRenewEvery(time.Second)), locktest.MustLock(t, c, "often 2", holdfast.WithRenewEvery(time.Second)),
		}
		holds := lockMany(t, c, 100, 0)
		time.Sleep(100 * time.Second)
		allHeld(t, append(holds, often...))
		_, batched := b.sent()
		if n, most := batched+b.Count(locktest.OpRenew), 2*100*4/3+100*10*4/3; n > most { // each up to a quarter early
			t.Errorf("%d renewals in 100 s, want at most %d", n, most)
		}
	})
}

// A lease that failed goes by its own backoff: the batches of others do not take it along.
func TestBatchLeavesWhatFailedToItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ill = "ill"
		var tries atomic.Int64
		b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
			if slices.ContainsFunc(leases, func(l holdfast.Lease) bool { return l.Name == ill }) {
				tries.Add(1)
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		b.Faults = func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew && l.Name == ill {
				tries.Add(1)
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		}
		c := locktest.NewClient(t, b)
		h := locktest.MustLock(t, c, ill)
		well := lockMany(t, c, 4, 0, holdfast.WithRenewEvery(100*time.Millisecond))
		time.Sleep(24 * time.Second)
		if n := tries.Load(); h.Err() != nil || n < 5 || n > 20 {
			t.Errorf("%d tries in 14 s of failures: %v", n, h.Err())
		}
		allHeld(t, well)
	})
}

// A lease that is about to be lost does not take those with it that are retried in the
// same call: after an outage those are lost whose time was over, and few more.
func TestOutageOfLeasesOfDifferentAges(t *testing.T) {
	for range 6 { // pauses are random
		synctest.Test(t, outageOfLeasesOfDifferentAges)
	}
}

func outageOfLeasesOfDifferentAges(t *testing.T) {
	const outage, end = 4 * time.Second, 30 * time.Second
	start := time.Now()
	hang := func() locktest.Fault {
		if d := time.Since(start); d > outage && d < end {
			return locktest.Fault{Hang: true}
		}
		return locktest.Fault{Delay: 60 * time.Millisecond}
	}
	b := newBatches(t, func(int, []holdfast.Lease) locktest.Fault { return hang() })
	b.Faults = func(op string, _ int, _ holdfast.Lease) locktest.Fault {
		if op == locktest.OpRenew {
			return hang()
		}
		return locktest.Fault{}
	}
	c := locktest.NewClient(t, b)
	holds := lockMany(t, c, 1000, 12*time.Millisecond)
	time.Sleep(2 * time.Minute)
	lost, doomed := 0, 5*1000/12 // 25 s after they were taken
	for _, h := range holds {
		if h.Err() != nil {
			lost++
		}
	}
	if lost < doomed || lost > doomed+100 {
		t.Errorf("%d are lost, of %d that had no chance", lost, doomed)
	}
}
