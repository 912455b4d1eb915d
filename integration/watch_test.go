package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The change stream of a waiter is cut off while the lock is released, and comes back — the
// waiter is granted the lock by that, long before it would have asked by itself.
func TestWatchLost(t *testing.T) {
	t.Parallel()
	t.Run(onMongo, func(t *testing.T) {
		t.Parallel()
		const poll = 10 * time.Minute
		for name, fault := range map[string]func(*link){"cut": (*link).cut, "reset": (*link).reset, "hung": (*link).hang} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := mongoTarget(t)
				way, name, sequence := b.link(t), fresh(), order{tb: t}
				// A TTL so long that no expiry wakes the waiter.
				long := []holdfast.ClientOption{holdfast.WithTTL(time.Hour), holdfast.WithGrace(time.Minute), holdfast.WithPollInterval(poll)}
				holder, waiter := b.actor(t, nil, long...), b.actor(t, way, long...)
				h := sequence.enter(holder.lock(name))
				next := make(chan *holdfast.Hold, 1)
				go func() { next <- sequence.enter(waiter.lock(name)) }()
				watched(t, b, waiter)
				fault(way)
				release(t, h)
				time.Sleep(2 * time.Second)
				way.heal()
				if successor := <-next; successor != nil {
					release(t, successor)
				}
			})
		}
	})
}

// watched waits until a waiter's change stream is in effect: it is the one on the
// collection, whose requests the server shows while it waits.
func watched(t *testing.T, b target, waiter *actor) {
	t.Helper()
	eventually(t, "the waiter has asked", func() bool { return waiter.count(holdfast.EventHolderSeen, "") > 0 })
	admin := b.collection.Database().Client().Database("admin")
	stage := bson.D{{Key: "$currentOp", Value: bson.D{{Key: "idleCursors", Value: true}}}}
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "ns", Value: b.collection.Database().Name() + "." + b.collection.Name()}, {Key: "cursor", Value: bson.D{{Key: "$exists", Value: true}}}}}}
	eventually(t, "the change stream is open", func() bool {
		cursor, err := admin.Aggregate(bounded(t), bson.A{stage, match})
		if err != nil {
			t.Fatal(err)
		}
		var found []bson.Raw
		if err := cursor.All(bounded(t), &found); err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
}

// Every wake-up of eight clients' change streams is dropped, doubled or delivered late and
// out of order, and records of free locks are replaced by hand by themselves — 200 grants come one
// after another with rising tokens, and no waiter is left waiting.
func TestWatchDuplicatedReordered(t *testing.T) {
	t.Parallel()
	t.Run(onMongo, func(t *testing.T) {
		t.Parallel()
		b := mongoTarget(t)
		const clients, names, grants = 8, 2, 200
		sequences := make(map[string]*order)
		for i := range names {
			sequences[fmt.Sprint("lock ", i)] = &order{tb: t}
		}
		left := make(chan struct{}, grants)
		for range grants {
			left <- struct{}{}
		}
		close(left)
		noise, quiet := context.WithCancel(t.Context())
		var meddler, workers sync.WaitGroup
		meddler.Go(func() { meddle(noise, b) })
		for range clients {
			a := newActor(t, unreliable{b.locker(t, nil)}, holdfast.WithTTL(b.ttl), holdfast.WithPollInterval(2*time.Second))
			workers.Go(func() {
				for range left {
					name := fmt.Sprint("lock ", rand.N(names))
					h, err := a.Lock(bounded(t), name)
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					sequences[name].enter(h)
					time.Sleep(rand.N(5 * time.Millisecond))
					release(t, h)
				}
			})
		}
		workers.Wait()
		quiet()
		meddler.Wait()
	})
}

// meddle replaces the records of free locks, again and again, by what they are: the change
// stream tells of each as of a release.
func meddle(ctx context.Context, b target) {
	unheld := bson.E{Key: "kid", Value: bson.D{{Key: "$exists", Value: false}}}
	for ctx.Err() == nil {
		var records []bson.M
		if cursor, err := b.collection.Find(ctx, bson.D{unheld}); err == nil {
			_ = cursor.All(ctx, &records) // what is not read is not replaced
		}
		for _, r := range records {
			r["remark"] = rand.Int64()
			same := bson.D{{Key: "_id", Value: r["_id"]}, {Key: "token", Value: r["token"]}, unheld}
			_, _ = b.collection.ReplaceOne(ctx, same, r) // unless it is taken meanwhile
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// unreliable is a Locker whose Watcher is.
type unreliable struct{ holdfast.Locker }

// Capabilities has the Watcher wrapped.
func (l unreliable) Capabilities() driver.Capabilities {
	a := l.Locker.Capabilities()
	a.Watcher = unreliableWatcher{a.Watcher}
	return a
}

type unreliableWatcher struct{ driver.Watcher }

// Watch delivers each wake-up not at all, once or twice, each time later than it was due by
// as much as it pleases: also after the watch was stopped.
func (w unreliableWatcher) Watch(name string, wake func()) (stop func()) {
	return w.Watcher.Watch(name, func() {
		for range rand.N(3) {
			time.AfterFunc(rand.N(100*time.Millisecond), wake)
		}
	})
}
