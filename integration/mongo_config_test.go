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

// A replica set has a primary, a secondary and an arbiter, and a default write concern of one
// member; the secondary is frozen, and later the primary is killed — nothing is granted that only
// the primary has stored, and no increment is lost.
func TestArbiter(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	m := env.StartMongo(t, env.MongoOptions{Arbiter: true})
	url := m.URL(t)
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(ttl))
	defer stop()
	c.awaitIncrements(20)
	primary, err := m.Primary(testContext(t))
	env.Check(t, err)
	secondary := 1 - primary
	client, waiter := open(t, url, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
	env.Check(t, m.Pause(testContext(t), secondary))
	for range 3 {
		wantNoGrant(t, client, "free", 2*time.Second, "a second member that has stored it")
	}
	env.Check(t, m.Resume(testContext(t), secondary))
	c.awaitIncrements(20)
	stop()
	c.check()

	h, err := client.Lock(testContext(t), "kept")
	env.Check(t, err)
	env.Check(t, m.Kill(testContext(t), primary))
	// Without its other member the set acknowledges no majority write.
	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		wantOver(t, h)
	}
	env.Check(t, m.Restart(testContext(t), primary))
	next, err := waiter.Lock(testContext(t), "kept")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d was granted after token %d", next.Token(), h.Token())
	}
}

// The connection string asks for reads from secondaries and for unacknowledged writes, and one
// secondary has stopped applying writes — reads of a lock are never stale, and no increment is
// lost.
func TestSecondaryPreference(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: 10 * time.Second, NoChaining: true})
	url := m.URL(t) + "&readPreference=secondary&readConcernLevel=local&w=1"
	primary, err := m.Primary(testContext(t))
	env.Check(t, err)
	frozen := (primary + 1) % 3
	direct := m.Connect(t, options.Client().SetHosts([]string{m.Hosts()[frozen]}).SetDirect(true))
	env.Check(t, direct.Database("admin").RunCommand(testContext(t), bson.D{{Key: "fsync", Value: 1}, {Key: "lock", Value: true}}).Err())
	defer func() {
		env.Check(t, direct.Database("admin").RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "fsyncUnlock", Value: 1}}).Err())
	}()

	client := open(t, url, holdfast.WithTTL(10*time.Second))
	for range 50 {
		h, err := client.Lock(testContext(t), "read")
		env.Check(t, err)
		if r, err := client.Inspect(testContext(t), "read"); err != nil || r.State != driver.StateHeld || r.Token != h.Token() {
			t.Fatalf("token %d is held, but Inspect returns %v with token %d (%v)", h.Token(), r.State, r.Token, err)
		}
		env.Check(t, h.Release(testContext(t)))
		if r, err := client.Inspect(testContext(t), "read"); err != nil || r.State != driver.StateFree {
			t.Fatalf("the lock is free, but Inspect returns %v (%v)", r.State, err)
		}
	}
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(10*time.Second))
	defer stop()
	c.awaitIncrements(50)
	stop()
	c.check()
}

// The TTL thread runs every second, and an index that an operator has created lets it remove each
// record as soon as its lease has ended — tokens rise, no holder loses its lock, and no increment
// is lost.
func TestTTLThreadRemovesRecordsEarly(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{TTLMonitorSecs: 1})
	db := m.Database(t)
	env.Check(t, db.RunCommand(testContext(t), bson.D{
		{Key: "createIndexes", Value: "holdfast_locks"},
		{Key: "indexes", Value: bson.A{bson.D{
			{Key: "key", Value: bson.D{{Key: "expiresAt", Value: 1}}}, {Key: "name", Value: "expiresAt_1"},
			{Key: "expireAfterSeconds", Value: 0},
		}}},
	}).Err())
	url := m.LockURL(db.Name())
	client := open(t, url, holdfast.WithTTL(20*time.Second)) // a busy machine may renew late
	kept, err := client.Lock(testContext(t), "kept")
	env.Check(t, err)
	renewed := time.Now().Add(25 * time.Second) // later than the first lease lasts
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(6*time.Second))
	defer stop()
	var last uint64
	for range 3 {
		c.awaitIncrements(10)
		h, err := client.Lock(testContext(t), "removed")
		env.Check(t, err)
		if h.Token() <= last {
			t.Errorf("token %d was granted after token %d, whose record was removed", h.Token(), last)
		}
		last = h.Token()
		env.Check(t, h.Release(testContext(t)))
		eventually(t, "the record to be removed", func() bool {
			n, err := db.Collection("holdfast_locks").CountDocuments(testContext(t), bson.D{{Key: "_id", Value: "removed"}})
			return err == nil && n == 0
		})
	}
	time.Sleep(time.Until(renewed))
	stop()
	c.check()
	if err := kept.Err(); err != nil {
		t.Errorf("the lock was held and renewed all the time, but: %v", err)
	}
}

// The TTL thread never runs and a holder dies — the lock is taken over when its lease has ended,
// which never depends on the removal of the record.
func TestTTLThreadNeverRuns(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{Args: []string{"--setParameter", "ttlMonitorEnabled=false"}})
	const ttl = 5 * time.Second
	url := m.URL(t)
	dead, err := driver.Open(testContext(t), url)
	env.Check(t, err)
	l, err := dead.TryAcquire(testContext(t), driver.Request{Name: "dead", ID: driver.NewLeaseID("3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"),
		Owner: "dead", TTL: ttl})
	env.Check(t, err)
	taken := time.Now()
	env.Check(t, dead.Close(t.Context()))
	h, err := open(t, url, holdfast.WithTTL(ttl)).Lock(testContext(t), "dead")
	env.Check(t, err)
	if took := time.Since(taken); took > ttl+20*time.Second || h.Token() <= l.Token {
		t.Errorf("token %d was granted after token %d, after %v", h.Token(), l.Token, took)
	}
}
