package mongo

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Two processes that release the lock and wait for it again at once are both granted it, again and again. The
// hint for one of them often arrives before the reply that says that it has entered the queue, and
// before a majority has the release. How evenly they take turns depends on the machine; the simulator judges that.
func TestTwoProcessesAlternate(t *testing.T) {
	serverprocess.Long(t, "needs hundreds of handoffs")
	base := mongotest.Collection(t)
	testAlternate(t, func() *mongo.Collection {
		return through(mongotest.Connect(t, mongotest.URI(t)), base)
	})
}

// Two Lockers of one client cannot both follow their hints until it was shown that the client has
// connections for both, which takes a few tenths of a second.
func TestLockersOfOneClientAlternate(t *testing.T) {
	serverprocess.Long(t, "needs hundreds of handoffs")
	coll := mongotest.Collection(t)
	testAlternate(t, func() *mongo.Collection { return coll })
}

// testAlternate fails unless each of two processes is granted the lock many times while the other one wants it, too.
func testAlternate(t *testing.T, collection func() *mongo.Collection) {
	t.Helper()
	const grants = 400
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var mu sync.Mutex
	var got [2]int
	var wg sync.WaitGroup
	for i := range 2 {
		// A poll mends a hint that is lost while the machine stands still. By polls alone the grants would take too long.
		c, _ := newProcess(t, collection(), holdfast.WithPollInterval(time.Minute))
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Lock(ctx, "job")
				if err != nil {
					return
				}
				mu.Lock()
				if got[i]++; min(got[0], got[1]) >= grants {
					cancel()
				}
				mu.Unlock()
				if err := h.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if min(got[0], got[1]) < grants {
		t.Errorf("within %v the processes were granted the lock %d and %d times", waitLimit, got[0], got[1])
	}
}

// A release wakes the processes in the order in which they came. On a busy machine a process may miss
// its turn, and then the next one takes the lock. So only rounds count in which no turn was over.
func TestQueueServesProcessesInOrder(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	const processes = 4
	first, _ := newProcess(t, coll)
	var all []*holdfast.Client
	var lockers []*Locker
	for range processes {
		c, l := newProcess(t, coll)
		all, lockers = append(all, c), append(lockers, l)
	}
	var wrong [][]int
	right := 0
	for end := time.Now().Add(waitLimit); right < 2 && len(wrong) < 2; {
		if time.Now().After(end) {
			t.Fatalf("%d rounds in order and %v, and in all others a turn was over", right, wrong)
		}
		held := mustLock(t, first, "job")
		var waiting []<-chan *holdfast.Hold
		for i, c := range all {
			waiting = append(waiting, lockSoon(t, c, "job"))
			awaitFollowed(t, lockers[i], "job")
		}
		order, longest := serve(t, held, waiting)
		switch {
		case longest >= driver.TurnLength:
		case slices.IsSorted(order):
			right++
		default:
			wrong = append(wrong, order)
		}
	}
	if right < 2 {
		t.Errorf("served in the orders %v, although no turn was over", wrong)
	}
}

// serve releases a hold and then that of each waiter. It returns the order in which they were granted
// the lock, and the longest time from a release to the next grant.
func serve(t *testing.T, held *holdfast.Hold, waiting []<-chan *holdfast.Hold) (order []int, longest time.Duration) {
	t.Helper()
	type grant struct {
		process int
		token   uint64
	}
	var grants []grant
	release := func(h *holdfast.Hold) (at time.Time) {
		at = time.Now()
		if err := h.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
		return at
	}
	end := time.Now().Add(waitLimit)
	for released := release(held); len(grants) < len(waiting); {
		if time.Now().After(end) {
			t.Fatalf("only %v were granted the lock", grants)
		}
		for i, got := range waiting {
			select {
			case h := <-got:
				longest = max(longest, time.Since(released))
				grants = append(grants, grant{i, h.Token()})
				released = release(h)
			case <-time.After(time.Millisecond):
			}
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.token, b.token) })
	for _, g := range grants {
		order = append(order, g.process)
	}
	return order, longest
}
