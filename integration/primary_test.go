package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The primary is killed (SIGKILL), three times, while clients add to a number under the
// lock — no addition is lost, no two clients are ever in at once, tokens rise, and
// additions go on after each kill.
func TestPrimaryKilled(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	c := &counter{t: t}
	stop := c.contend(m.URL(t), 8, holdfast.WithTTL(10*time.Second))
	defer stop()
	c.more(20)
	for range 3 {
		member, err := m.Primary(within(t))
		env.Check(t, err)
		killed := time.Now()
		env.Check(t, m.Kill(within(t), member))
		c.more(1)
		t.Logf("member %d killed; an addition after %s", member, time.Since(killed).Round(time.Millisecond))
		c.more(20)
		env.Check(t, m.Restart(within(t), member))
	}
	stop()
	c.check()
}

// The primary steps down, five times, while clients add to a number under the lock — no
// addition is lost, no two clients are ever in at once, tokens rise, and additions go on.
func TestPrimaryStepsDown(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	c := &counter{t: t}
	stop := c.contend(m.URL(t), 8, holdfast.WithTTL(10*time.Second))
	defer stop()
	for range 5 {
		c.more(20)
		// It refuses while no secondary has caught up.
		eventually(t, "the primary to step down", func() bool { return m.StepDown(within(t)) == nil })
	}
	c.more(20)
	stop()
	c.check()
}

// The primary is frozen (SIGSTOP) until another is elected, and wakes believing that it
// still is one — no addition is lost, no two clients are ever in at once, tokens rise.
func TestPrimaryPaused(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	c := &counter{t: t}
	stop := c.contend(m.URL(t), 8, holdfast.WithTTL(6*time.Second))
	defer stop()
	for range 2 {
		c.more(20)
		member, err := m.Primary(within(t))
		env.Check(t, err)
		env.Check(t, m.Pause(within(t), member))
		c.more(20)
		env.Check(t, m.Resume(within(t), member))
	}
	c.more(20)
	stop()
	c.check()
}

// The primary is cut off from the other members, with some clients on its side, one of
// which holds a lock — that side is granted nothing, its holder is ended by its deadline,
// the other side goes on, and no addition is lost.
func TestPrimaryCutOff(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	const ttl = 6 * time.Second
	database := m.Database(t).Name()
	member, err := m.Primary(within(t))
	env.Check(t, err)
	aside := open(t, m.DirectURL(t, database, member), holdfast.WithTTL(ttl))
	other := open(t, m.LockURL(database), holdfast.WithTTL(ttl)) // now: the others may not be a majority for a while
	h, err := aside.Lock(within(t), "kept aside")
	env.Check(t, err)

	c := &counter{t: t}
	stop := c.contend(m.LockURL(database), 4, holdfast.WithTTL(ttl))
	defer stop()
	stopAside := c.contend(m.DirectURL(t, database, member), 2, holdfast.WithTTL(ttl))
	defer stopAside()
	c.more(20)
	env.Check(t, m.CutOff(within(t), member))
	cut := time.Now()

	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		t.Error("the holder aside lives on after its deadline")
	}
	next, err := other.Lock(within(t), "kept aside")
	env.Check(t, err)
	if h.Context().Err() == nil || next.Token() <= h.Token() {
		t.Errorf("granted token %d while the holder aside, with %d, has %v", next.Token(), h.Token(), h.Err())
	}
	c.more(20)
	for time.Since(cut) < 2*ttl {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if h, err := aside.TryLock(ctx, "taken aside"); err == nil {
			t.Errorf("granted token %d without a majority", h.Token())
		}
		cancel()
	}
	env.Check(t, m.Rejoin(within(t), member))
	c.more(20)
	stop()
	stopAside()
	c.check()
}

// Both secondaries are frozen, so that no write reaches a majority in time — nothing is
// granted, a holder ends by its deadline, and once they wake the lock, whatever became of
// those writes, is granted within a TTL, with a higher token.
func TestWriteConcernTimeout(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: 30 * time.Second}) // the primary stays
	url := m.URL(t)
	holder, waiter := open(t, url, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
	h, err := holder.Lock(within(t), "held")
	env.Check(t, err)
	primary, err := m.Primary(within(t))
	env.Check(t, err)
	for member := range 3 {
		if member != primary {
			env.Check(t, m.Pause(within(t), member))
		}
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		switch _, err := waiter.TryLock(ctx, "free"); {
		case err == nil:
			t.Error("granted without a majority")
		case errors.Is(err, holdfast.ErrHeld):
			// An earlier try of its own has landed on the primary and is being cleaned up.
		}
		cancel()
	}
	select {
	case <-h.Context().Done():
	case <-time.After(ttl):
		t.Error("the holder lives on after its deadline")
	}
	for member := range 3 {
		if member != primary {
			env.Check(t, m.Resume(within(t), member))
		}
	}
	for _, name := range []string{"held", "free"} {
		next, err := waiter.Lock(within(t), name)
		env.Check(t, err)
		if name == "held" && next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		env.Check(t, next.Release(within(t)))
	}
}
