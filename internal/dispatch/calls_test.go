package dispatch

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/worker"
)

// item is an entry of the tests' Calls.
type item struct {
	n, class int
	stale    bool
	index    int
}

// bench makes Calls that note what they do.
type bench struct {
	*Calls[*item]
	mu      sync.Mutex
	workers worker.Group
	do      func(entries []int) // outside mu
	begun   [][]int
	hung    [][]int
	now     int // calls under way
	most    int
}

func newBench(change func(*Rules[*item])) *bench {
	b := &bench{do: func([]int) { time.Sleep(time.Second) }}
	rules := Rules[*item]{
		Mu: &b.mu, Workers: &b.workers, Limit: 4,
		Before: func(x, y *item) bool { return x.n < y.n },
		Moved:  func(i *item, index int) { i.index = index },
		Class:  func(i *item) int { return i.class },
		Stale:  func(i *item) bool { return i.stale },
		Begin:  b.begin,
	}
	change(&rules)
	b.Calls = NewCalls(rules)
	return b
}

func (b *bench) begin(items []*item) Call {
	var entries []int
	for _, i := range items {
		entries = append(entries, i.n)
	}
	b.begun = append(b.begun, entries)
	b.now++
	b.most = max(b.most, b.now)
	return Call{Patience: time.Minute, Do: func() {
		b.do(entries)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.now--
	}, Hung: func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hung = append(b.hung, entries)
	}}
}

// add adds entries, in the opposite order, and begins their calls.
func (b *bench) add(retry bool, items ...*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range slices.Backward(items) {
		b.Add(i, retry)
	}
	b.Start()
}

func (b *bench) calls() [][]int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.begun, slices.Compare)
	return slices.Clone(b.begun)
}

// count is how many calls were made, how many of them hung, and how many were under way at once.
func (b *bench) count() (calls, hung, most int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.begun), len(b.hung), b.most
}

func numbered(n, class int) (all []*item) {
	for i := range n {
		all = append(all, &item{n: i, class: class})
	}
	return all
}

// Each class has a limit of its own, which is used fully, and entries get their calls in their order.
func TestLimitOfAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(*Rules[*item]) {})
		b.add(false, numbered(10, 1)...)
		if got := b.calls(); !slices.EqualFunc(got, [][]int{{0}, {1}, {2}, {3}}, slices.Equal) {
			t.Errorf("began %v", got)
		}
		b.add(false, numbered(10, 2)...)
		time.Sleep(time.Minute)
		if n, _, most := b.count(); n != 20 || most != 8 {
			t.Errorf("%d calls, %d at once, want 20 and 8", n, most)
		}
	})
}

// Entries share a call if it fits: with a weight of 3 under a limit of 4, one call for many and one for a single entry.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(r *Rules[*item]) { r.Batch, r.Weight = 3, 3 })
		b.add(false, &item{n: 100})
		all := numbered(8, 0)
		all[1].stale = true
		b.add(false, all...)
		if got := b.calls(); !slices.EqualFunc(got, [][]int{{0, 2, 3}, {100}}, slices.Equal) {
			t.Errorf("began %v", got)
		}
		time.Sleep(time.Minute)
		if got := b.calls(); !slices.EqualFunc(got, [][]int{{0, 2, 3}, {4, 5, 6}, {7}, {100}}, slices.Equal) {
			t.Errorf("began %v", got)
		}
	})
}

// What may share a call joins a call that is made anyway, and no other: neither a full one nor one that cannot begin.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		later := numbered(10, 0)[5:]
		b = newBench(func(r *Rules[*item]) {
			r.Limit, r.Batch, r.Weight = 1, 3, 1
			r.Share = func(int) {
				for _, i := range later {
					b.Add(i, false)
				}
				later = nil
			}
		})
		left := func() int {
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(later)
		}
		b.add(true, &item{n: -1})
		if left() == 0 {
			t.Error("a retry is shared")
		}
		b.add(false, numbered(3, 0)...)
		time.Sleep(time.Second + time.Millisecond)
		if left() == 0 {
			t.Error("a full call is shared")
		}
		b.add(false, &item{n: 4})
		if left() == 0 {
			t.Error("a call that cannot begin is shared")
		}
		time.Sleep(time.Minute)
		if got := b.calls(); !slices.EqualFunc(got, [][]int{{-1}, {0, 1, 2}, {4, 5, 6}, {7, 8, 9}}, slices.Equal) {
			t.Errorf("began %v", got)
		}
	})
}

// A call that hangs is reported once and counts no more after its patience, also if it returns later.
func TestHungCallFreesTheLimitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(*Rules[*item]) {})
		b.do = func(entries []int) {
			if time.Sleep(time.Second); entries[0] < 4 {
				time.Sleep(2 * time.Minute)
			}
		}
		b.add(false, numbered(40, 0)...)
		time.Sleep(time.Minute - time.Millisecond)
		if n, hung, _ := b.count(); n != 4 || hung != 0 {
			t.Errorf("before the patience ends, %d calls and %d hung", n, hung)
		}
		time.Sleep(2 * time.Millisecond)
		if n, hung, _ := b.count(); n != 8 || hung != 4 {
			t.Errorf("after it, %d calls and %d hung", n, hung)
		}
		time.Sleep(5 * time.Minute) // the hung calls have returned
		b.mu.Lock()
		b.most = 0
		b.mu.Unlock()
		b.add(false, numbered(40, 0)...)
		time.Sleep(11 * time.Minute)
		if n, hung, most := b.count(); n != 80 || hung != 8 || most > 8 {
			t.Errorf("at the end %d calls, %d hung, %d at once", n, hung, most)
		}
	})
}

// Retries come first if the rules say so, but use half of the limit at most.
func TestRetriesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(r *Rules[*item]) { r.RetriesFirst = true })
		b.add(false, &item{n: 0}, &item{n: 1}, &item{n: 2}, &item{n: 3})
		b.add(false, &item{n: 4})
		b.add(true, &item{n: 10}, &item{n: 11}, &item{n: 12})
		time.Sleep(time.Second + time.Millisecond)
		if got := b.calls(); !slices.EqualFunc(got, [][]int{{0}, {1}, {2}, {3}, {4}, {10}, {11}}, slices.Equal) {
			t.Errorf("began %v", got)
		}
		time.Sleep(time.Minute)
		if n := len(b.calls()); n != 8 {
			t.Errorf("%d calls of 8", n)
		}
	})
}

// After the group of workers is closed no call begins but those that a call under way lets begin in its place, and
// an entry that waits can be removed.
func TestClosedWorkersBeginNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(r *Rules[*item]) { r.Limit = 1 })
		b.workers.Close()
		first, second := &item{n: 1}, &item{n: 2}
		b.add(false, first, second)
		if got := b.calls(); len(got) != 0 || first.index < 0 {
			t.Errorf("began %v", got)
		}
		b.mu.Lock()
		b.Remove(first, false, first.index)
		b.mu.Unlock()
		if first.index != -1 || second.index != 0 {
			t.Errorf("the indexes are %d and %d", first.index, second.index)
		}
	})
}
