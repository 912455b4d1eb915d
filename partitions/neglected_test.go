package partitions_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The lease of a partition is broken, and its function ignores that. The instance cannot acquire the
// partition again, so another does, although it has its share already. An overrun is reported.
func TestPartitionsStuckFunction(t *testing.T) {
	for _, c := range []struct{ n, instances int }{{6, 2}, {64, 3}, {3, 3}, {1, 2}} { // the last: one stands by
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFleet(t, c.n)
			release := f.IgnoreFirstLoss()
			defer release()
			for range c.instances {
				f.Join()
			}
			for begin := time.Now(); !f.AllOwned() && time.Since(begin) < 5*time.Second; {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			stuck := f.Live[slices.IndexFunc(f.Live, func(in *locktest.Instance) bool { return len(in.Owned()) > 0 })]
			partition := stuck.Owned()[0]
			locktest.Break(t, f.Store, f.Record(partition))
			for len(stuck.Owned()) > 0 && slices.Contains(stuck.Owned(), partition) {
				time.Sleep(10 * time.Millisecond)
			}
			took := f.UntilAllOwned(25 * time.Second)
			if slices.Contains(stuck.Owned(), partition) {
				t.Errorf("n=%d: the stuck instance owns partition %d again", c.n, partition)
			}
			time.Sleep(time.Minute)
			if got := stuck.Events.Count(holdfast.EventOverrun); got != 1 {
				t.Errorf("n=%d: %d overruns reported, want 1", c.n, got)
			}
			if !f.AllOwned() {
				t.Errorf("n=%d: not all are owned: %v", c.n, f.Ownership())
			}
			time.Sleep(10 * time.Minute)
			before := f.Ownership()
			f.TakeMoves()
			if f.N >= len(f.Live) && !f.Even() {
				t.Errorf("n=%d: shares of %v in the end", c.n, f.Shares())
			}
			if average := f.AverageAtWork(20 * time.Minute); average < float64(c.n)-0.01 {
				t.Errorf("n=%d: %.2f at work on average", c.n, average)
			}
			if m := f.TakeMoves(); m != 0 || !slices.EqualFunc(before, f.Ownership(), slices.Equal) {
				t.Errorf("n=%d: %d moves while nothing happened", c.n, m)
			}
			t.Logf("n=%d: acquired by another after %v", c.n, took)
			release()
			time.Sleep(time.Minute)
			if !f.AllOwned() {
				t.Errorf("n=%d: not all are owned after the function returned: %v", c.n, f.Ownership())
			}
			f.End()
		})
	}
}

// The attempts at partitions of one member fail, while its renewals succeed. The others keep its share at
// work, and return it when that member can acquire partitions.
func TestPartitionsMemberThatCannotAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.EvenFleet(t, 30, 2, 3*time.Second)
		unfit := f.Join(func(s *locktest.Link) { s.NoPartitions.Store(true) })
		if average := f.AverageAtWork(time.Hour); average < 29 {
			t.Errorf("%.1f of %d at work on average", average, f.N)
		}
		unfit.Link.NoPartitions.Store(false)
		t.Log("even after", f.UntilEven(6*time.Minute))
		f.End()
	})
}
