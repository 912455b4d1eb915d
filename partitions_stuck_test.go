package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// stick has the first function whose lease is lost ignore that, until the result is called.
func (f *fleet) stick() (unstick func()) {
	var stuck atomic.Bool
	done := make(chan struct{})
	f.work = func(ctx context.Context, _ int) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), holdfast.ErrLost) && stuck.CompareAndSwap(false, true) {
			<-done
		}
		return context.Cause(ctx)
	}
	return sync.OnceFunc(func() { close(done) })
}

// all reports whether every partition is owned by one of the living.
func (f *fleet) all() bool {
	var owned []int
	for _, in := range f.live {
		owned = append(owned, in.Owned()...)
	}
	slices.Sort(owned)
	return len(owned) == f.n && len(slices.Compact(owned)) == f.n
}

// untilAll waits until all partitions are owned, and returns how long that took.
func (f *fleet) untilAll(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.all() {
		if time.Since(begin) > most {
			f.tb.Fatalf("not all partitions are owned after %v: %v", most, f.ownership())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// The lease of a partition is broken, and its function ignores that: the instance cannot
// take the partition again, so another does, although it has its share already. The
// function that goes on is an overrun, and is reported.
func TestPartitionsStuckFunction(t *testing.T) {
	for _, c := range []struct{ n, instances int }{{6, 2}, {64, 3}, {3, 3}, {1, 2}} { // the last: one stands by
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, c.n)
			unstick := f.stick()
			defer unstick()
			for range c.instances {
				f.join()
			}
			for begin := time.Now(); !f.all() && time.Since(begin) < 5*time.Second; {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			stuck := f.live[slices.IndexFunc(f.live, func(in *instance) bool { return len(in.Owned()) > 0 })]
			partition := stuck.Owned()[0]
			if err := f.store.Locker().BreakNow(t.Context(), f.record(partition)); err != nil {
				t.Fatal(err)
			}
			for len(stuck.Owned()) > 0 && slices.Contains(stuck.Owned(), partition) {
				time.Sleep(10 * time.Millisecond)
			}
			took := f.untilAll(25 * time.Second)
			if slices.Contains(stuck.Owned(), partition) {
				t.Errorf("n=%d: the stuck instance owns partition %d again", c.n, partition)
			}
			time.Sleep(time.Minute)
			if got := stuck.events.count(holdfast.EventOverrun); got != 1 {
				t.Errorf("n=%d: %d overruns reported, want 1", c.n, got)
			}
			if !f.all() {
				t.Errorf("n=%d: not all are owned: %v", c.n, f.ownership())
			}
			time.Sleep(10 * time.Minute)
			before := f.ownership()
			f.moved()
			if f.n >= len(f.live) && !f.even() {
				t.Errorf("n=%d: shares of %v in the end", c.n, f.shares())
			}
			if average := f.atWork(20 * time.Minute); average < float64(c.n)-0.01 {
				t.Errorf("n=%d: %.2f at work on average", c.n, average)
			}
			if m := f.moved(); m != 0 || !slices.EqualFunc(before, f.ownership(), slices.Equal) {
				t.Errorf("n=%d: %d moves while nothing happened", c.n, m)
			}
			t.Logf("n=%d: taken by another after %v", c.n, took)
			unstick()
			time.Sleep(time.Minute)
			if !f.all() {
				t.Errorf("n=%d: not all are owned after the function returned: %v", c.n, f.ownership())
			}
			f.end()
		})
	}
}

// A member that can renew, but whose attempts at partitions fail: the others keep its
// share at work, and return it when it can take it.
func TestPartitionsMemberThatCannotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 30)
		f.join()
		f.join()
		f.settle(3 * time.Second)
		unfit := f.join(func(s *severed) { s.unfit.Store(true) })
		if average := f.atWork(time.Hour); average < 29 {
			t.Errorf("%.1f of %d at work on average", average, f.n)
		}
		unfit.wire.unfit.Store(false)
		t.Log("even after", f.settle(6*time.Minute))
		f.end()
	})
}
