package renewal_test

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
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// batches is a backend to whose renewals, in batches or one by one, faults can happen. It measures how many are under way at once.
type batches struct {
	*locktest.CallGauge
	mu      sync.Mutex
	sizes   []int // of the batches
	singles int
}

// newBatches makes a backend whose renewals take as long as a database's, unless strike says otherwise. n counts the batches
// from 1, and is 0 for a renewal of one lease.
func newBatches(tb testing.TB, strike func(n int, leases []holdfast.Lease) locktest.Fault) *batches {
	if strike == nil {
		strike = func(int, []holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: 60 * time.Millisecond} }
	}
	b := &batches{}
	l := driver.Intercept(memory.New(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		var ft locktest.Fault
		switch call.Method {
		case driver.MethodRenew:
			b.note(0)
			ft = strike(0, []holdfast.Lease{call.Lease})
		case driver.MethodRenewBatch:
			ft = strike(b.note(len(call.Leases)), call.Leases)
		default:
			return next(ctx, call)
		}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > 10*time.Second {
			tb.Errorf("%s has no time limit, or a long one", call.Method)
		}
		if ft.Hang {
			<-ctx.Done()
			return driver.Answer{Err: ctx.Err()}
		}
		if time.Sleep(ft.Delay); ft.Refuse != nil {
			return driver.Answer{Err: ft.Refuse}
		}
		a := next(context.WithoutCancel(ctx), call)
		if ft.Lose != nil {
			a.Err = ft.Lose
		}
		return a
	})
	b.CallGauge = locktest.NewCallGauge(l, 0)
	return b
}

// note notes a call. It returns how many batches there were.
func (b *batches) note(size int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size == 0 {
		b.singles++
	} else {
		b.sizes = append(b.sizes, size)
	}
	return len(b.sizes)
}

// sent returns how many batches were sent, and how many leases were renewed in them and one by one.
func (b *batches) sent() (n, batched, singles int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, size := range b.sizes {
		batched += size
	}
	return len(b.sizes), batched, b.singles
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

// Many leases cost few calls, however they were acquired, and no call is large. A lease costs no goroutine.
func TestRenewalsGoInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(t, nil)
		c := locktest.NewClient(t, b, holdfast.WithTTL(15*time.Second))
		goroutines := runtime.NumGoroutine()
		holds := lockMany(t, c, 2000, 5*time.Millisecond)
		before, renewed, _ := b.sent()
		time.Sleep(5 * time.Minute)
		after, batched, singles := b.sent()
		if n := runtime.NumGoroutine() - goroutines; n > 10 { // four batches under way may have three each
			t.Errorf("%d leases cost %d goroutines", len(holds), n)
		}
		allHeld(t, holds)
		// One by one there would be at least 2,000 calls in 5 s.
		if calls, single := after-before, 2000*60; calls > single/100 || singles > 2 {
			t.Errorf("%d calls and %d renewals one by one, for %d", calls, singles, single)
		}
		if n, least := batched-renewed, 2000*60; n < least || n > least*4/3 { // each up to a quarter early; a busy loop would show here
			t.Errorf("%d renewals in five minutes, want %d or some more", n, least)
		}
		if most := slices.Max(b.sizes); most > 500 {
			t.Errorf("a batch of %d", most)
		}
		if n := b.Highest(driver.MethodRenewBatch); n > 4 {
			t.Errorf("%d batches at once", n)
		}
	})
}

// Batches that fail in any way are retried, so leases survive an outage.
func TestFailingBatches(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"refused":        {Refuse: locktest.ErrInjected},
		"answer lost":    {Lose: locktest.ErrInjected},
		"hung":           {Hang: true},
		"slow, answered": {Delay: 2 * time.Second, Lose: locktest.ErrInjected},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
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
	}
}

// A batch that hangs delays no other lease.
func TestHungBatchDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int64
		c := locktest.NewClient(t, newBatches(t, func(n int, leases []holdfast.Lease) locktest.Fault {
			if n > 0 && n <= 3 { // of four at once
				hung.Add(int64(len(leases)))
				return locktest.Fault{Hang: true}
			}
			return locktest.Fault{Delay: 60 * time.Millisecond}
		}))
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
		time.Sleep(time.Minute)
		allHeld(t, holds)
	})
}

// One lease that makes each of its batches fail costs no other lease anything, nor does one that another has released: the backend's
// definite answer for it ends that lease alone, and at once.
func TestPoisonedBatch(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{"fails": {Refuse: locktest.ErrInjected}, "hangs": {Hang: true}, "is released": {}} {
		locktest.Bubble(t, name, func(t *testing.T) {
			poison := func(l holdfast.Lease) bool { return l.Name == "lease 77" && ft != locktest.Fault{} }
			b := newBatches(t, func(_ int, leases []holdfast.Lease) locktest.Fault {
				if slices.ContainsFunc(leases, poison) {
					return ft
				}
				return locktest.Fault{Delay: 20 * time.Millisecond}
			})
			c := locktest.NewClient(t, b)
			holds := lockMany(t, c, 1000, 0)
			if name == "is released" {
				if err := b.Release(t.Context(), holds[77].Lease()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Second)
				if err := holds[77].Err(); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("the one that is released, at its renewal: %v", err)
				}
			}
			time.Sleep(2 * time.Minute)
			if err := holds[77].Err(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("the one that fails: %v", err)
			}
			allHeld(t, slices.Delete(holds, 77, 78))
		})
	}
}

// A driver that returns too few results has said nothing about any lease. The leases are
// renewed one by one.
func TestShortBatchResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		short := func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodRenewBatch {
				return driver.Answer{}
			}
			return next(ctx, call)
		}
		c := locktest.NewClient(t, driver.Intercept(memory.New(), short), holdfast.WithObserver(seen.Observe))
		holds := lockMany(t, c, 40, 0)
		time.Sleep(time.Minute)
		allHeld(t, holds)
		if seen.Count(holdfast.EventError) == 0 {
			t.Error("no failure was reported")
		}
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
		m := locktest.NewManager(t, c)
		locktest.MustAdd(t, m, locktest.Names("n", 200)...)
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
// does not cause others to be renewed every second too. One whose renewal failed waits for its own backoff: the batches of others
// leave it out.
func TestBatchRenewsWhatIsDueSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ill = "ill"
		attempts, usual := 0, 0
		var mu sync.Mutex
		c := locktest.NewClient(t, newBatches(t, func(_ int, leases []holdfast.Lease) (ft locktest.Fault) {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range leases {
				switch {
				case l.Name == ill:
					attempts++
					ft.Refuse = locktest.ErrInjected
				case !strings.HasPrefix(l.Name, "often"):
					usual++
				}
			}
			return ft
		}))
		h := locktest.MustLock(t, c, ill)
		for _, name := range locktest.Names("often", 4) {
			locktest.MustLock(t, c, name, holdfast.WithRenewEvery(100*time.Millisecond))
		}
		holds := lockMany(t, c, 100, 0)
		time.Sleep(24 * time.Second)
		mu.Lock()
		if h.Err() != nil || attempts < 5 || attempts > 20 {
			t.Errorf("%d attempts in 14 s of failures: %v", attempts, h.Err())
		}
		mu.Unlock()
		time.Sleep(76 * time.Second)
		allHeld(t, holds)
		mu.Lock()
		defer mu.Unlock()
		if most := 100 * 10 * 4 / 3; usual > most+200 { // each up to a quarter early, and those that shared a call with the ill one
			t.Errorf("%d renewals of 100 leases in 100 s, want at most %d", usual, most)
		}
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
	c := locktest.NewClient(t, newBatches(t, func(int, []holdfast.Lease) locktest.Fault { return hang() }))
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
