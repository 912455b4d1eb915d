package renewal_test

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
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// batches is a Locker whose batches of renewals can fail.
type batches struct {
	*locktest.Faulty
	strike func(n int, leases []holdfast.Lease) locktest.Fault // n counts the batches from 1
	tb     testing.TB

	mu          sync.Mutex
	sizes       []int
	busy, worst int
}

// newBatches makes a Locker whose batches take as long as a database's, unless strike says
// otherwise.
func newBatches(tb testing.TB, strike func(n int, leases []holdfast.Lease) locktest.Fault) *batches {
	if strike == nil {
		strike = func(int, []holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: 60 * time.Millisecond} }
	}
	return &batches{tb: tb, Faulty: locktest.NewFaulty(tb, memory.NewStore().Locker(), nil), strike: strike}
}

func (b *batches) Capabilities() driver.Capabilities {
	a := b.Faulty.Capabilities()
	a.BatchRenewer = b
	return a
}

func (b *batches) RenewBatch(ctx context.Context, leases []holdfast.Lease) ([]holdfast.Lease, []error) {
	b.mu.Lock()
	b.sizes = append(b.sizes, len(leases))
	n := len(b.sizes)
	b.busy++
	b.worst = max(b.worst, b.busy)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.busy--
		b.mu.Unlock()
	}()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > 10*time.Second {
		b.tb.Errorf("a batch has no time limit, or a long one")
	}
	ft := b.strike(n, leases)
	all := func(err error) ([]holdfast.Lease, []error) { return leases, slices.Repeat([]error{err}, len(leases)) }
	if ft.Hang {
		<-ctx.Done()
		return all(ctx.Err())
	}
	time.Sleep(ft.Delay)
	if ft.Refuse != nil {
		return all(ft.Refuse)
	}
	renewed, errs := b.Locker.Capabilities().BatchRenewer.RenewBatch(context.WithoutCancel(ctx), leases)
	if ft.Lose != nil {
		return all(ft.Lose)
	}
	return renewed, errs
}

func (b *batches) sent() (n, leases int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, size := range b.sizes {
		leases += size
	}
	return len(b.sizes), leases
}

func lockMany(t *testing.T, c *holdfast.Client, n int, between time.Duration, opts ...holdfast.Option) (holds []*holdfast.Hold) {
	t.Helper()
	for i := range n {
		holds = append(holds, locktest.MustLock(t, c, fmt.Sprint("lease ", i), opts...))
		time.Sleep(between)
	}
	return holds
}

func allHeld(t *testing.T, holds []*holdfast.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := h.Err(); err != nil {
			t.Fatalf("%q: %v", h.Name(), err)
		}
	}
}

// Many leases cost few calls, however they were acquired, and no call is large.
func TestRenewalsGoInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, nil)
		c := locktest.NewClient(t, b, holdfast.WithTTL(15*time.Second))
		holds := lockMany(t, c, 2000, 5*time.Millisecond)
		before, _ := b.sent()
		time.Sleep(5 * time.Minute)
		after, _ := b.sent()
		allHeld(t, holds)
		// One by one there would be at least 2,000 calls in 5 s.
		if calls, single := after-before, 2000*60; calls > single/100 || b.Count(locktest.OpRenew) > 2 {
			t.Errorf("%d calls and %d renewals one by one, for %d", calls, b.Count(locktest.OpRenew), single)
		}
		if most := slices.Max(b.sizes); most > 500 {
			t.Errorf("a batch of %d", most)
		}
		if b.worst > 4 {
			t.Errorf("%d batches at once", b.worst)
		}
	})
}

// A lease's deadline counts from before its own batch was sent.
func TestBatchDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, func(int, []holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: 2 * time.Second} })
		c := locktest.NewClient(t, b, holdfast.WithGrace(5*time.Second))
		holds := lockMany(t, c, 3, 0)
		time.Sleep(12*time.Second + time.Millisecond) // renewed at 10 s, answered at 12 s
		synctest.Wait()
		for _, h := range holds {
			if in := h.LostIn(); in > 23*time.Second || in < 22*time.Second {
				t.Errorf("lost in %v, not 25 s after the request was sent", in)
			}
		}
	})
}

// The backend's definite answer for one lease of a batch ends that lease alone.
func TestOneLostInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, nil)
		c := locktest.NewClient(t, b)
		holds := lockMany(t, c, 100, 0)
		if err := b.Release(t.Context(), holds[42].Lease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if err := holds[42].Err(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the lost one: %v", err)
		}
		time.Sleep(time.Minute)
		allHeld(t, slices.Delete(holds, 42, 43))
	})
}

// Batches that fail in any way are retried, so leases survive an outage. A lease that is never
// renewed is lost in time.
func TestFailingBatches(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"refused":        {Refuse: locktest.ErrInjected},
		"answer lost":    {Lose: locktest.ErrInjected},
		"hung":           {Hang: true},
		"slow, answered": {Delay: 2 * time.Second, Lose: locktest.ErrInjected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outage := time.Now().Add(9 * time.Second)
				b := newBatches(t, func(int, []holdfast.Lease) locktest.Fault {
					if since := time.Since(outage); since > 0 && since < 12*time.Second {
						return ft
					}
					return locktest.Fault{Delay: 20 * time.Millisecond}
				})
				c := locktest.NewClient(t, b)
				holds := lockMany(t, c, 1000, 0)
				time.Sleep(time.Minute)
				allHeld(t, holds)
			})
		})
	}
	t.Run("forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBatches(t, func(int, []holdfast.Lease) locktest.Fault { return locktest.Fault{Refuse: locktest.ErrInjected} })
			b.Faults = locktest.Refuse(locktest.OpRenew)
			c := locktest.NewClient(t, b)
			holds := lockMany(t, c, 100, 0)
			time.Sleep(25*time.Second + time.Millisecond)
			synctest.Wait()
			for _, h := range holds {
				if h.Context().Err() == nil {
					t.Fatalf("%q is not lost", h.Name())
				}
			}
		})
	})
}

// A batch that hangs delays no other lease.
func TestHungBatchDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int64
		b := newBatches(t, nil)
		b.strike = func(n int, leases []holdfast.Lease) locktest.Fault {
			if n <= 3 { // of four at once
				hung.Add(int64(len(leases)))
				return locktest.Fault{Hang: true}
			}
			return locktest.Fault{Delay: 60 * time.Millisecond}
		}
		c := locktest.NewClient(t, b)
		holds := lockMany(t, c, 5000, 0)
		time.Sleep(11 * time.Second)
		if n := hung.Load(); n == 0 || n > 1500 {
			t.Fatalf("%d leases in batches that hang", n)
		}
		renewed := int64(0)
		for _, h := range holds {
			if h.LostIn() > 20*time.Second {
				renewed++
			}
		}
		if renewed != int64(len(holds))-hung.Load() {
			t.Errorf("%d leases were renewed beside %d that hang", renewed, hung.Load())
		}
		if b.worst > 4 {
			t.Errorf("%d batches at once", b.worst)
		}
		time.Sleep(time.Minute)
		allHeld(t, holds)
	})
}

// One lease that makes each of its batches fail costs no other lease anything.
func TestPoisonedBatch(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{"fails": {Refuse: locktest.ErrInjected}, "hangs": {Hang: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				poison := func(l holdfast.Lease) bool { return l.Name == "lease 77" }
				b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
					if slices.ContainsFunc(leases, poison) {
						return ft
					}
					return locktest.Fault{Delay: 20 * time.Millisecond}
				})
				b.Faults = func(op string, _ int, l holdfast.Lease) locktest.Fault {
					if op == locktest.OpRenew && poison(l) {
						return ft
					}
					return locktest.Fault{}
				}
				c := locktest.NewClient(t, b)
				holds := lockMany(t, c, 1000, 0)
				time.Sleep(2 * time.Minute)
				if err := holds[77].Err(); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("the one that fails: %v", err)
				}
				allHeld(t, slices.Delete(holds, 77, 78))
			})
		})
	}
}

// A driver that returns too few results has said nothing about any lease. The leases are
// renewed one by one.
func TestShortBatchResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		c := locktest.NewClient(t, short{newBatches(t, nil)}, holdfast.WithObserver(seen.Observe))
		holds := lockMany(t, c, 40, 0)
		time.Sleep(time.Minute)
		allHeld(t, holds)
		if seen.Count(holdfast.EventError) == 0 {
			t.Error("no failure was reported")
		}
	})
}

type short struct{ *batches }

func (s short) Capabilities() driver.Capabilities {
	a := s.batches.Capabilities()
	a.BatchRenewer = s
	return a
}

func (short) RenewBatch(context.Context, []holdfast.Lease) ([]holdfast.Lease, []error) {
	return nil, nil
}

// A lease that is released while it waits for its renewal is not renewed.
func TestReleasedLeaseIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over sync.Map
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if _, released := over.Load(l.Name); released && op == locktest.OpRenew {
				t.Errorf("%q is renewed after its release", l.Name)
			}
			if op == locktest.OpRenew {
				return locktest.Fault{Delay: 10 * time.Second}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f, holdfast.WithTTL(10*time.Minute))
		var holds []*holdfast.Hold
		for i := range 200 {
			holds = append(holds, locktest.MustTryLock(t, c, fmt.Sprint(i)))
		}
		time.Sleep(201 * time.Second) // all are due, and 64 calls may be under way
		for _, h := range holds[180:] {
			over.Store(h.Name(), true)
			go func() { _ = h.Release(context.Background()) }()
		}
		time.Sleep(time.Minute)
		allHeld(t, holds[:180])
	})
}

// A failed call for many leases of one manager is reported once, not once a lease.
func TestFailedBatchIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, func(n int, _ []holdfast.Lease) locktest.Fault {
			if n == 1 {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		var seen locktest.Events
		c := locktest.NewClient(t, b, holdfast.WithObserver(seen.Observe))
		m, err := leases.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if err := m.Add(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := seen.Count(holdfast.EventError); n != 1 || !strings.Contains(seen.First(holdfast.EventError).Err.Error(), "and 199 more") {
			t.Errorf("one failed call is reported %d times, first as %v", n, seen.First(holdfast.EventError).Err)
		}
		if held := len(m.Leases()); held != 200 {
			t.Errorf("%d leases are held", held)
		}
	})
}

// A batch also renews what is due soon, and nothing else: a lease that is renewed every second
// does not cause others to be renewed every second too.
func TestBatchRenewsWhatIsDueSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, nil)
		c := locktest.NewClient(t, b)
		often := []*holdfast.Hold{
			locktest.MustLock(t, c, "often 1", holdfast.WithRenewEvery(time.Second)), locktest.MustLock(t, c, "often 2",
				holdfast.WithRenewEvery(time.Second)),
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

// A lease whose renewal failed waits for its own backoff: the batches of others leave it out.
func TestBatchLeavesOutWhatWaitsForItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ill = "ill"
		var attempts atomic.Int64
		b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
			if slices.ContainsFunc(leases, func(l holdfast.Lease) bool { return l.Name == ill }) {
				attempts.Add(1)
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		b.Faults = func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew && l.Name == ill {
				attempts.Add(1)
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		}
		c := locktest.NewClient(t, b)
		h := locktest.MustLock(t, c, ill)
		well := lockMany(t, c, 4, 0, holdfast.WithRenewEvery(100*time.Millisecond))
		time.Sleep(24 * time.Second)
		if n := attempts.Load(); h.Err() != nil || n < 5 || n > 20 {
			t.Errorf("%d attempts in 14 s of failures: %v", n, h.Err())
		}
		allHeld(t, well)
	})
}

// A lease that is about to be lost does not make others fail that are retried in the same call:
// after an outage, few leases are lost but those whose time was over.
func TestOutageOfLeasesOfDifferentAges(t *testing.T) {
	for range 6 { // backoffs are random
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
	lost, doomed := 0, 5*1000/12 // 25 s after they were acquired
	for _, h := range holds {
		if h.Err() != nil {
			lost++
		}
	}
	if lost < doomed || lost > doomed+100 {
		t.Errorf("%d are lost, of %d that could not be renewed", lost, doomed)
	}
}
