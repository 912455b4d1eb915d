package mongo

import (
	"context"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// Two processes that release the lock and wait for it again at once are granted it in turn. The
// hint for one of them often arrives before the reply that says that it has entered the queue, and
// before a majority has the release.
func TestTwoProcessesAlternate(t *testing.T) {
	base := mongotest.Collection(t)
	testAlternate(t, 20, func() *mongo.Collection { // a newcomer may come before a request that is still under way
		return mongotest.Connect(t, mongotest.URI(t)).Database(base.Database().Name()).Collection(base.Name())
	})
}

// Two Lockers of one client cannot both follow their hints until it is known that the client has
// connections for both, which takes a tenth of a second.
func TestLockersOfOneClientAlternate(t *testing.T) {
	coll := mongotest.Collection(t)
	testAlternate(t, 50, func() *mongo.Collection { return coll })
}

// testAlternate fails if one of two processes is granted the lock more often in a row.
func testAlternate(t *testing.T, most int, collection func() *mongo.Collection) {
	t.Helper()
	const grants = 400
	ctx, cancel := context.WithTimeout(bounded(t), waitLimit)
	defer cancel()
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 2 {
		c, _ := newProcess(t, collection(), hintsOnly)
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Lock(ctx, "job")
				if err != nil {
					return
				}
				mu.Lock()
				if order = append(order, i); len(order) == grants {
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
	last := [2]int{}
	for at, who := range order {
		if last[who] = at; at-min(last[0], last[1]) > most {
			t.Fatalf("one process was granted the lock %d times in a row: %v", most, order)
		}
	}
	if len(order) < grants {
		t.Errorf("%d grants", len(order))
	}
}
