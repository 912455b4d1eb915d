package integration

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/env"
)

// A set of a primary, a secondary and an arbiter, whose default write concern is one
// member; the secondary is frozen, and later the primary killed — nothing is granted that
// only the primary has, and no addition is lost.
func TestArbiter(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	m := env.StartMongo(t, env.MongoOptions{Arbiter: true})
	url := m.URL(t)
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(ttl))
	defer stop()
	c.more(20)
	primary, err := m.Primary(within(t))
	env.Check(t, err)
	secondary := 1 - primary
	client, waiter := open(t, url, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
	env.Check(t, m.Pause(within(t), secondary))
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if h, err := client.TryLock(ctx, "free"); err == nil {
			t.Errorf("granted token %d, which one member has", h.Token())
		}
		cancel()
	}
	env.Check(t, m.Resume(within(t), secondary))
	c.more(20)
	stop()
	c.check()

	h, err := client.Lock(within(t), "kept")
	env.Check(t, err)
	env.Check(t, m.Kill(within(t), primary))
	// Without its other member the set acknowledges nothing by a majority.
	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		t.Error("the holder lives on after its deadline")
	}
	env.Check(t, m.Restart(within(t), primary))
	next, err := waiter.Lock(within(t), "kept")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
}

// The user's URL prefers secondaries for reads and asks for no acknowledgement of writes,
// and a secondary has stopped applying writes — what is told of a lock is never out of
// date, and no addition is lost.
func TestSecondaryPreference(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: 10 * time.Second, NoChaining: true})
	url := m.URL(t) + "&readPreference=secondary&readConcernLevel=local&w=1"
	primary, err := m.Primary(within(t))
	env.Check(t, err)
	frozen := (primary + 1) % 3
	direct := m.Connect(t, options.Client().SetHosts([]string{m.Hosts()[frozen]}).SetDirect(true))
	env.Check(t, direct.Database("admin").RunCommand(within(t), bson.D{{Key: "fsync", Value: 1}, {Key: "lock", Value: true}}).Err())
	defer func() {
		env.Check(t, direct.Database("admin").RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "fsyncUnlock", Value: 1}}).Err())
	}()

	client := open(t, url, holdfast.WithTTL(10*time.Second))
	for range 50 {
		h, err := client.Lock(within(t), "read")
		env.Check(t, err)
		if r, err := client.Inspect(within(t), "read"); err != nil || r.State != driver.StateHeld || r.Token != h.Token() {
			t.Fatalf("token %d is held, and Inspect tells of %v with token %d (%v)", h.Token(), r.State, r.Token, err)
		}
		env.Check(t, h.Release(within(t)))
		if r, err := client.Inspect(within(t), "read"); err != nil || r.State != driver.StateFree {
			t.Fatalf("the lock is free, and Inspect tells of %v (%v)", r.State, err)
		}
	}
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(10*time.Second))
	defer stop()
	c.more(50)
	stop()
	c.check()
}

// The TTL thread runs every second and, by an index that an operator has made, removes
// each record as soon as its lease is over — tokens rise all the same, nobody who holds
// loses anything, and no addition is lost.
func TestReapedEarly(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{TTLMonitorSecs: 1})
	db := m.Database(t)
	env.Check(t, db.RunCommand(within(t), bson.D{
		{Key: "createIndexes", Value: "holdfast_locks"},
		{Key: "indexes", Value: bson.A{bson.D{
			{Key: "key", Value: bson.D{{Key: "expiresAt", Value: 1}}}, {Key: "name", Value: "expiresAt_1"},
			{Key: "expireAfterSeconds", Value: 0},
		}}},
	}).Err())
	url := m.LockURL(db.Name())
	client := open(t, url, holdfast.WithTTL(6*time.Second))
	kept, err := client.Lock(within(t), "kept")
	env.Check(t, err)
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(6*time.Second))
	defer stop()
	var last uint64
	for range 3 {
		c.more(10)
		h, err := client.Lock(within(t), "reaped")
		env.Check(t, err)
		if h.Token() <= last {
			t.Errorf("token %d after %d, whose record was removed", h.Token(), last)
		}
		last = h.Token()
		env.Check(t, h.Release(within(t)))
		eventually(t, "the record to be removed", func() bool {
			n, err := db.Collection("holdfast_locks").CountDocuments(within(t), bson.D{{Key: "_id", Value: "reaped"}})
			return err == nil && n == 0
		})
	}
	stop()
	c.check()
	if err := kept.Err(); err != nil {
		t.Errorf("held and renewed all the time: %v", err)
	}
}

// The TTL thread never runs and a holder dies — the lock is taken over when its lease
// is over: that never depends on the record's removal.
func TestReapedLate(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{Args: []string{"--setParameter", "ttlMonitorEnabled=false"}})
	const ttl = 5 * time.Second
	url := m.URL(t)
	dead, err := driver.Open(within(t), url)
	env.Check(t, err)
	l, err := dead.TryAcquire(within(t), driver.Request{Name: "dead", ID: driver.NewLeaseID("3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"), Owner: "dead", TTL: ttl})
	env.Check(t, err)
	taken := time.Now()
	env.Check(t, dead.Close(t.Context()))
	h, err := open(t, url, holdfast.WithTTL(ttl)).Lock(within(t), "dead")
	env.Check(t, err)
	if took := time.Since(taken); took > ttl+ttl/2 || h.Token() <= l.Token {
		t.Errorf("token %d after %d, after %v", h.Token(), l.Token, took)
	}
}
