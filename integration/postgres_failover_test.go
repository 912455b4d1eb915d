package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// PostgreSQL's primary is killed (SIGKILL) and its synchronous standby promoted, three times, while
// clients increment a counter under a lock; each time the old primary becomes the standby — no
// increment is lost, no two clients are ever inside at the same time, tokens rise, and increments
// continue.
func TestSynchronousStandbyPromoted(t *testing.T) {
	t.Parallel()
	p := env.StartPostgres(t, env.PostgresOptions{})
	countDuring(t, p.URL(t), 10*time.Second, 3, func(c *counter) {
		old := p.Primary()
		killed := time.Now()
		env.Check(t, p.Kill(testContext(t), old))
		env.Check(t, p.Promote(testContext(t), 1-old))
		c.awaitIncrements(1)
		t.Logf("member %d killed and replaced; an increment after %s", old, time.Since(killed).Round(time.Millisecond))
		env.Check(t, p.Follow(testContext(t), old, true))
	})
}

// PostgreSQL's primary is frozen (SIGSTOP) and its synchronous standby promoted, and then the old
// primary goes on beside the new one, while statements on it are cancelled — it grants nothing, no
// increment is lost, no two clients are ever inside at the same time, and tokens rise.
func TestTwoPrimaries(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	p := env.StartPostgres(t, env.PostgresOptions{})
	url := p.URL(t)
	countDuring(t, url, ttl, 2, func(c *counter) {
		old := p.Primary()
		alone := open(t, p.Through(t, url, p.DirectAddress(old)), holdfast.WithTTL(ttl)) // a client that knows only the old primary
		env.Check(t, p.Pause(testContext(t), old))
		env.Check(t, p.Promote(testContext(t), 1-old))
		c.awaitIncrements(20)
		env.Check(t, p.Resume(testContext(t), old))
		for resumed := time.Now(); time.Since(resumed) < ttl; {
			wantNoGrant(t, alone, "free on the old primary", 500*time.Millisecond, "the standby")
			env.Check(t, p.Cancel(testContext(t), old, "pg_cancel_backend", env.Waiting))
		}
		env.Check(t, p.Follow(testContext(t), old, true))
	})
}

// PostgreSQL's primary is cut off from its synchronous standby, together with some clients, one of
// which holds a lock, and the standby is promoted — nothing is granted on the primary's side, the hold
// there ends at its deadline, clients of the other side continue, and no increment is lost.
func TestPostgresPrimaryCutOff(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	p := env.StartPostgres(t, env.PostgresOptions{})
	url := p.URL(t)
	near := p.Through(t, url, p.DirectAddress(0))
	isolated, other := open(t, near, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
	h, err := isolated.Lock(testContext(t), "held on the isolated side")
	env.Check(t, err)
	c := &counter{t: t}
	stop := c.contend(url, 4, holdfast.WithTTL(ttl))
	defer stop()
	stopIsolated := c.contend(near, 2, holdfast.WithTTL(ttl))
	defer stopIsolated()
	c.awaitIncrements(20)
	env.Check(t, p.CutOff(testContext(t), 0))
	cut := time.Now()
	env.Check(t, p.Promote(testContext(t), 1))
	next, err := other.Lock(testContext(t), "held on the isolated side")
	env.Check(t, err)
	if h.Err() == nil || next.Token() <= h.Token() {
		t.Errorf("granted token %d while the isolated hold with token %d has %v", next.Token(), h.Token(), h.Err())
	}
	c.awaitIncrements(20)
	for time.Since(cut) < 2*ttl {
		wantNoGrant(t, isolated, "free on the isolated side", time.Second, "the standby")
	}
	env.Check(t, p.Rejoin(testContext(t), 0))
	env.Check(t, p.Follow(testContext(t), 0, true))
	c.awaitIncrements(20)
	stop()
	stopIsolated()
	c.check()
}

// PostgreSQL's synchronous standby is down, and commits' waits for it are cancelled
// (pg_cancel_backend), which the server reports as success; then it is back, or promoted after the
// primary is killed — nothing is granted meanwhile, a hold ends at its deadline, and afterwards the
// locks are granted with higher tokens, also if the standby has none of the last writes.
func TestStandbyDown(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	p := env.StartPostgres(t, env.PostgresOptions{})
	url := p.URL(t)
	for _, promote := range []bool{false, true} {
		holder, waiter := open(t, url, holdfast.WithTTL(ttl)), open(t, url, holdfast.WithTTL(ttl))
		h, err := holder.Lock(testContext(t), "held")
		env.Check(t, err)
		env.Check(t, p.Kill(testContext(t), 1))
		for killed := time.Now(); time.Since(killed) < ttl; {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := waiter.TryLock(ctx, "free")
			if err == nil {
				t.Error("the lock was granted without the standby")
			}
			cancel()
			env.Check(t, p.Cancel(testContext(t), 0, "pg_cancel_backend", env.Waiting))
		}
		wantOver(t, h)
		if promote {
			env.Check(t, p.Kill(testContext(t), 0))
		}
		env.Check(t, p.Restart(testContext(t), 1))
		if promote {
			env.Check(t, p.Promote(testContext(t), 1))
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
}

// PostgreSQL's primary and its synchronous standby are killed, and an asynchronous standby, which has
// not seen the last grants, is promoted — tokens rise all the same, and the next renewal of a holder whose
// grant was forgotten fails, before its deadline; until then there may be two holders.
func TestAsynchronousStandbyPromoted(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	p := env.StartPostgres(t, env.PostgresOptions{Asynchronous: true})
	url := p.URL(t)
	holder, other := open(t, url, holdfast.WithTTL(ttl), holdfast.WithRenewEvery(ttl/20)), open(t, url, holdfast.WithTTL(ttl))
	first, err := holder.Lock(testContext(t), "known")
	env.Check(t, err)
	env.Check(t, p.Follow(testContext(t), 2, false)) // its copy has the grant
	env.Check(t, p.Kill(testContext(t), 2))
	forgotten, err := holder.Lock(testContext(t), "forgotten")
	env.Check(t, err)
	env.Check(t, p.Kill(testContext(t), 0))
	env.Check(t, p.Kill(testContext(t), 1))
	env.Check(t, p.Restart(testContext(t), 2))
	env.Check(t, p.Promote(testContext(t), 2))
	successor, err := other.Lock(testContext(t), "forgotten")
	env.Check(t, err)
	if successor.Token() <= forgotten.Token() {
		t.Errorf("token %d was granted after token %d", successor.Token(), forgotten.Token())
	}
	if _, err := other.TryLock(testContext(t), "known"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a grant that the standby had seen: %v, want held", err)
	}
	if cause := awaitEnd(t, forgotten); !errors.Is(cause, holdfast.ErrLost) || forgotten.LostIn() <= 0 {
		t.Errorf("the forgotten hold ended with %v, %v before its deadline", cause, forgotten.LostIn())
	}
	left := first.LostIn()
	eventually(t, "a renewal", func() bool { return first.Err() != nil || first.LostIn() > left })
	if err := first.Err(); err != nil {
		t.Errorf("the hold that the standby had seen: %v", err)
	}
	env.Check(t, successor.Release(testContext(t)))
	env.Check(t, first.Release(testContext(t)))
}

// Clients reach PostgreSQL through PgBouncer, in each of its modes, which is killed, frozen and started
// again; then all server connections are ended (pg_terminate_backend), and the server is killed and
// started again — no increment is lost, no two clients are ever inside at the same time, tokens rise,
// and increments continue.
func TestPooler(t *testing.T) {
	t.Parallel()
	p := env.StartPostgres(t, env.PostgresOptions{})
	c := &counter{t: t}
	database := p.URL(t)
	var poolers []*postgrestest.Pooler
	var stops []func()
	for _, mode := range []string{postgrestest.SessionMode, postgrestest.TransactionMode, postgrestest.StatementMode} {
		pooler := p.PgBouncer(t, 0, mode)
		poolers = append(poolers, pooler)
		stops = append(stops, c.contend(pooler.At(t, database), 3, holdfast.WithTTL(10*time.Second)))
		defer stops[len(stops)-1]()
	}
	c.awaitIncrements(20)
	for _, pooler := range poolers {
		env.Check(t, pooler.Kill())
		c.awaitIncrements(10)
		env.Check(t, pooler.Restart(testContext(t)))
		env.Check(t, pooler.Pause())
		c.awaitIncrements(10)
		env.Check(t, pooler.Resume())
	}
	for range 5 {
		c.awaitIncrements(5)
		env.Check(t, p.Cancel(testContext(t), 0, "pg_terminate_backend", "true"))
	}
	env.Check(t, p.Kill(testContext(t), 0))
	env.Check(t, p.Restart(testContext(t), 0))
	c.awaitIncrements(20)
	for _, stop := range stops {
		stop()
	}
	c.check()
}
