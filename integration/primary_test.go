package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The primary is killed (SIGKILL), three times, while clients increment a counter under a lock —
// no increment is lost, no two clients are ever inside at the same time, tokens rise, and
// increments continue after each kill.
func TestPrimaryKilled(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	countDuring(t, m.URL(t), 10*time.Second, 3, func(c *counter) {
		member, err := m.Primary(testContext(t))
		env.Check(t, err)
		killed := time.Now()
		env.Check(t, m.Kill(testContext(t), member))
		c.awaitIncrements(1)
		t.Logf("member %d killed; an increment after %s", member, time.Since(killed).Round(time.Millisecond))
		c.awaitIncrements(20)
		env.Check(t, m.Restart(testContext(t), member))
	})
}

// The primary steps down, five times, while clients increment a counter under a lock — no
// increment is lost, no two clients are ever inside at the same time, tokens rise, and increments
// continue.
func TestPrimaryStepsDown(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	countDuring(t, m.URL(t), 10*time.Second, 5, func(*counter) {
		// It refuses to step down while no secondary has caught up.
		eventually(t, "the primary to step down", func() bool { return m.StepDown(testContext(t)) == nil })
	})
}

// The primary is frozen (SIGSTOP) until another is elected, and resumes while it still believes
// that it is the primary — no increment is lost, no two clients are ever inside at the same time,
// and tokens rise.
func TestPrimaryPaused(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	countDuring(t, m.URL(t), 6*time.Second, 2, func(c *counter) {
		member, err := m.Primary(testContext(t))
		env.Check(t, err)
		env.Check(t, m.Pause(testContext(t), member))
		c.awaitIncrements(20)
		env.Check(t, m.Resume(testContext(t), member))
	})
}

// The primary is cut off from the other members, together with some clients, one of which holds a
// lock — nothing is granted on its side, the hold there ends at its deadline, clients of the
// other side continue, and no increment is lost.
func TestPrimaryCutOff(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: 3 * time.Second}) // no other election on a busy machine
	const ttl = 6 * time.Second
	database := m.Database(t).Name()
	member, err := m.Primary(testContext(t))
	env.Check(t, err)
	isolated := open(t, m.DirectURL(t, database, member), holdfast.WithTTL(ttl))
	other := open(t, m.LockURL(database), holdfast.WithTTL(ttl)) // opened now, since the others may have no majority for a while
	h, err := isolated.Lock(testContext(t), "held on the isolated side")
	env.Check(t, err)

	c := &counter{t: t}
	stop := c.contend(m.LockURL(database), 4, holdfast.WithTTL(ttl))
	defer stop()
	stopIsolated := c.contend(m.DirectURL(t, database, member), 2, holdfast.WithTTL(ttl))
	defer stopIsolated()
	c.awaitIncrements(20)
	env.Check(t, m.CutOff(testContext(t), member))
	cut := time.Now()

	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		wantOver(t, h)
	}
	next, err := other.Lock(testContext(t), "held on the isolated side")
	env.Check(t, err)
	if h.Context().Err() == nil || next.Token() <= h.Token() {
		t.Errorf("granted token %d while the isolated hold with token %d has %v", next.Token(), h.Token(), h.Err())
	}
	c.awaitIncrements(20)
	for time.Since(cut) < 2*ttl {
		wantNoGrant(t, isolated, "free on the isolated side", time.Second, "a majority")
	}
	env.Check(t, m.Rejoin(testContext(t), member))
	c.awaitIncrements(20)
	stop()
	stopIsolated()
	c.check()
}

// Both secondaries are frozen, so that no write reaches a majority in time — nothing is granted,
// a hold ends at its deadline, and once the secondaries resume the lock is granted within a TTL,
// with a higher token, whatever became of the earlier writes.
func TestWriteConcernTimeout(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: 30 * time.Second}) // the primary stays primary
	url := m.URL(t)
	holder, waiter := open(t, url, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
	h, err := holder.Lock(testContext(t), "held")
	env.Check(t, err)
	primary, err := m.Primary(testContext(t))
	env.Check(t, err)
	for member := range 3 {
		if member != primary {
			env.Check(t, m.Pause(testContext(t), member))
		}
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		switch _, err := waiter.TryLock(ctx, "free"); {
		case err == nil:
			t.Error("the lock was granted without a majority")
		case errors.Is(err, holdfast.ErrHeld):
			// An earlier attempt of this client reached the primary and is being cleaned up.
		}
		cancel()
	}
	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		wantOver(t, h)
	}
	for member := range 3 {
		if member != primary {
			env.Check(t, m.Resume(testContext(t), member))
		}
	}
	for _, name := range []string{"held", "free"} {
		next, err := waiter.Lock(testContext(t), name)
		env.Check(t, err)
		if name == "held" && next.Token() <= h.Token() {
			t.Errorf("token %d was granted after token %d", next.Token(), h.Token())
		}
		env.Check(t, next.Release(testContext(t)))
	}
}
