package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The cursor on the hints that wake a waiter is cut while the lock is released, and then works again — the
// waiter is granted the lock when the cursor is open again, long before its next poll.
func TestWatchLost(t *testing.T) {
	t.Parallel()
	t.Run(onMongo, loseWatch)
}

func loseWatch(t *testing.T) {
	t.Parallel()
	const poll = 10 * time.Minute
	for name, fault := range map[string]func(*faultyNetwork){"cut": (*faultyNetwork).cut, "reset": (*faultyNetwork).reset,
		"hung": (*faultyNetwork).hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mongoBackend(t)
			network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
			// The TTL is so long that no expiry wakes the waiter.
			long := []holdfast.ClientOption{holdfast.WithTTL(time.Hour), holdfast.WithGrace(time.Minute), holdfast.WithPollInterval(poll)}
			holder, waiter := b.client(t, nil, long...), b.client(t, network, long...)
			h := exclusion.check(holder.lock(name))
			next := make(chan *holdfast.Hold, 1)
			go func() { next <- exclusion.check(waiter.lock(name)) }()
			awaitCursor(t, b, waiter)
			fault(network)
			release(t, h)
			time.Sleep(2 * time.Second)
			network.restore()
			if successor := <-next; successor != nil {
				release(t, successor)
			}
		})
	}
}

// awaitCursor waits until the cursor is open that wakes a waiter. It is the only open cursor on the
// hints, so the server lists it.
func awaitCursor(t *testing.T, b backend, waiter *testClient) {
	t.Helper()
	namespace := "^" + regexp.QuoteMeta(b.collection.Database().Name()+"."+b.collection.Name()+".hints.")
	eventually(t, "the waiter has seen the holder", func() bool { return waiter.count(holdfast.EventHolderSeen, "") > 0 })
	admin := b.collection.Database().Client().Database("admin")
	stage := bson.D{{Key: "$currentOp", Value: bson.D{{Key: "idleCursors", Value: true}}}}
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "ns", Value: bson.D{{Key: "$regex", Value: namespace}}},
		{Key: "cursor", Value: bson.D{{Key: "$exists", Value: true}}}}}}
	eventually(t, "the cursor is open", func() bool {
		cursor, err := admin.Aggregate(testContext(t), bson.A{stage, match})
		if err != nil {
			t.Fatal(err)
		}
		var found []bson.Raw
		if err := cursor.All(testContext(t), &found); err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
}

// Every wake-up of eight clients is dropped, doubled, or delivered late and out of order, and records
// of free locks are rewritten by hand — 200 grants follow one another with rising tokens, and no
// waiter is left waiting.
func TestWatchDuplicatedReordered(t *testing.T) {
	t.Parallel()
	t.Run(onMongo, confuseWatch)
}

func confuseWatch(t *testing.T) {
	t.Parallel()
	b := mongoBackend(t)
	const clients, names, grants = 8, 2, 200
	exclusion := make(map[string]*exclusionChecker)
	for i := range names {
		exclusion[fmt.Sprint("lock ", i)] = &exclusionChecker{tb: t}
	}
	left := make(chan struct{}, grants)
	for range grants {
		left <- struct{}{}
	}
	close(left)
	rewriting, stopRewriting := context.WithCancel(t.Context())
	var rewriter, workers sync.WaitGroup
	rewriter.Go(func() { rewriteFreeRecords(rewriting, b) })
	for range clients {
		a := newTestClient(t, unreliable(b.locker(t, nil)), holdfast.WithTTL(b.ttl), holdfast.WithPollInterval(2*time.Second))
		workers.Go(func() {
			for range left {
				name := fmt.Sprint("lock ", rand.N(names))
				h, err := a.Lock(testContext(t), name)
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				exclusion[name].check(h)
				time.Sleep(rand.N(5 * time.Millisecond))
				release(t, h)
			}
		})
	}
	workers.Wait()
	stopRewriting()
	rewriter.Wait()
}

// rewriteFreeRecords rewrites the records of free locks, again and again, without a change that
// matters.
func rewriteFreeRecords(ctx context.Context, b backend) {
	unheld := bson.E{Key: "kid", Value: bson.D{{Key: "$exists", Value: false}}}
	for ctx.Err() == nil {
		var records []bson.M
		if cursor, err := b.collection.Find(ctx, bson.D{unheld}); err == nil {
			_ = cursor.All(ctx, &records) // on an error there is nothing to rewrite
		}
		for _, r := range records {
			r["remark"] = rand.Int64()
			same := bson.D{{Key: "_id", Value: r["_id"]}, {Key: "token", Value: r["token"]}, unheld}
			_, _ = b.collection.ReplaceOne(ctx, same, r) // matches nothing if the lock was taken meanwhile
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// unreliable makes a Locker with an unreliable Waker. It delivers each wake-up not at all, once
// or twice, after a random delay, even after the watch was stopped.
func unreliable(l holdfast.Locker) holdfast.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if wake := call.Wake; wake != nil {
			call.Wake = func(up driver.Wakeup) {
				for range rand.N(3) {
					time.AfterFunc(rand.N(100*time.Millisecond), func() { wake(up) })
				}
			}
		}
		return next(ctx, call)
	})
}
