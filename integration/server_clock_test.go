package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/env"
)

// A failover promotes a server whose clock is ten minutes ahead, and another one returns to a
// server with the right time, while clients write under the lock with their tokens — beyond the
// grace leases may overlap, so only tokens protect: each token is higher than all earlier ones, a
// write with a lower token is refused, and no waiter waits for ten minutes.
func TestServerClockAheadAndBack(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	m := env.StartMongo(t, env.MongoOptions{FakeClock: true})
	first, err := m.Primary(testContext(t))
	env.Check(t, err)
	for member := range 3 {
		if member != first {
			env.Check(t, m.SetClock(testContext(t), member, 10*time.Minute))
		}
	}
	url := m.URL(t)
	f := &fencedRegister{t: t}
	stop := f.contend(url, 4, holdfast.WithTTL(ttl), holdfast.WithPollInterval(time.Second))
	defer stop()
	f.awaitGrants(10)

	failOver := func() {
		before, err := m.Primary(testContext(t))
		env.Check(t, err)
		env.Check(t, m.Kill(testContext(t), before))
		eventually(t, "another primary", func() bool {
			now, err := m.Primary(testContext(t))
			return err == nil && now != before
		})
		env.Check(t, m.Restart(testContext(t), before))
		f.awaitGrants(10)
	}
	failOver() // to a clock that is ahead
	waiter := open(t, url, holdfast.WithTTL(ttl), holdfast.WithPollInterval(time.Second))
	dead := acquireAndAbandon(t, url, "abandoned", ttl)
	for member := range 3 {
		if ahead, err := m.Primary(testContext(t)); err != nil || member == ahead {
			env.Check(t, err)
			continue
		}
		env.Check(t, m.SetClock(testContext(t), member, 0))
		// A mongod whose clock steps back by ten minutes while it runs starts no election for ten
		// minutes, so it is restarted.
		env.Check(t, m.Kill(testContext(t), member))
		env.Check(t, m.Restart(testContext(t), member))
	}
	// The next primary has the right time again. Expiries that the previous one wrote lie far
	// ahead, and the dead holder would keep its lock for ten minutes.
	failOver()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	h, err := waiter.Lock(ctx, "abandoned")
	env.Check(t, err)
	if h.Token() <= dead.Token {
		t.Errorf("token %d was granted after token %d", h.Token(), dead.Token)
	}
	stop()
	f.check()
}

// acquireAndAbandon acquires a lock like a process that dies at once.
func acquireAndAbandon(t *testing.T, url, name string, ttl time.Duration) holdfast.Lease {
	t.Helper()
	locker, err := driver.Open(testContext(t), url)
	env.Check(t, err)
	defer locker.Close(t.Context())
	l, err := locker.TryAcquire(testContext(t), driver.Request{Name: name, ID: driver.NewLeaseID("3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"),
		Owner: "dead", TTL: ttl})
	env.Check(t, err)
	return l
}

// fencedRegister refuses a write with a lower token than it has seen, as every protected resource
// should.
type fencedRegister struct {
	t *testing.T

	mu                sync.Mutex
	highest           uint64
	grants            []grant
	accepted, refused int
}

// grant is one successful acquire: when it was requested, and when it was granted.
type grant struct {
	requested, granted time.Time
	token              uint64
}

var errStale = errors.New("a write with a higher token was accepted before")

func (f *fencedRegister) contend(url string, clients int, opts ...holdfast.ClientOption) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var wg sync.WaitGroup
	for range clients {
		client := open(f.t, url, opts...)
		wg.Go(func() {
			for ctx.Err() == nil {
				f.round(ctx, client)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// round acquires the lock and writes for a while.
func (f *fencedRegister) round(ctx context.Context, client *holdfast.Client) {
	requested := time.Now()
	h, err := client.TryLock(ctx, "register")
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	f.record(grant{requested, time.Now(), h.Token()})
	for range 10 {
		if h.Context().Err() != nil || f.write(h.Token()) != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = h.Release(ctx) // if this fails, the lease expires
}

func (f *fencedRegister) record(g grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grants = append(f.grants, g)
}

func (f *fencedRegister) write(token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.highest {
		f.refused++
		return errStale
	}
	f.highest = token
	f.accepted++
	return nil
}

// awaitGrants waits until n more tokens have been granted.
func (f *fencedRegister) awaitGrants(n int) {
	f.t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.grants)
	}
	want := count() + n
	eventually(f.t, "more grants", func() bool { return count() >= want })
}

// check compares each grant with those that had returned before it was requested.
func (f *fencedRegister) check() {
	f.t.Helper()
	tokens := map[uint64]bool{}
	for i, g := range f.grants {
		if tokens[g.token] {
			f.t.Errorf("token %d was granted twice", g.token)
		}
		tokens[g.token] = true
		for _, earlier := range f.grants[:i] {
			if earlier.granted.Before(g.requested) && earlier.token >= g.token {
				f.t.Errorf("token %d was requested after token %d had been granted", g.token, earlier.token)
			}
		}
	}
	f.t.Logf("%d grants, %d writes, %d with a lower token refused", len(f.grants), f.accepted, f.refused)
}
