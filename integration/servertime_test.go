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

// A fail-over makes a server primary whose clock is ten minutes ahead, and another one
// back to the right time, while clients write under the lock with their tokens — beyond
// the grace leases overlap, so the promise is the tokens': each is higher than those
// granted before, a write with a lower one is refused, and nobody waits for ten minutes.
func TestServerClockAheadAndBack(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	m := env.StartMongo(t, env.MongoOptions{FakeClock: true})
	first, err := m.Primary(within(t))
	env.Check(t, err)
	for member := range 3 {
		if member != first {
			env.Check(t, m.SetClock(within(t), member, 10*time.Minute))
		}
	}
	url := m.URL(t)
	f := &fenced{t: t}
	stop := f.contend(url, 4, holdfast.WithTTL(ttl), holdfast.WithPollInterval(time.Second))
	defer stop()
	f.more(10)

	failOver := func() {
		before, err := m.Primary(within(t))
		env.Check(t, err)
		env.Check(t, m.Kill(within(t), before))
		eventually(t, "another primary", func() bool {
			now, err := m.Primary(within(t))
			return err == nil && now != before
		})
		env.Check(t, m.Restart(within(t), before))
		f.more(10)
	}
	failOver() // ahead
	waiter := open(t, url, holdfast.WithTTL(ttl), holdfast.WithPollInterval(time.Second))
	dead := abandon(t, url, "abandoned", ttl)
	for member := range 3 {
		if ahead, err := m.Primary(within(t)); err != nil || member == ahead {
			env.Check(t, err)
			continue
		}
		env.Check(t, m.SetClock(within(t), member, 0))
		// A mongod that runs while its clock steps back holds no election for so long.
		env.Check(t, m.Kill(within(t), member))
		env.Check(t, m.Restart(within(t), member))
	}
	// The next one is right again: expiries that the one before wrote lie far ahead, and
	// the dead holder would keep its lock for ten minutes.
	failOver()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := waiter.Lock(ctx, "abandoned")
	env.Check(t, err)
	if h.Token() <= dead.Token {
		t.Errorf("token %d after %d", h.Token(), dead.Token)
	}
	stop()
	f.check()
}

// abandon takes a lock as a process does that dies at once.
func abandon(t *testing.T, url, name string, ttl time.Duration) holdfast.Lease {
	t.Helper()
	locker, err := driver.Open(within(t), url)
	env.Check(t, err)
	defer locker.Close(t.Context())
	l, err := locker.TryAcquire(within(t), driver.Request{Name: name, ID: driver.NewLeaseID("3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"), Owner: "dead", TTL: ttl})
	env.Check(t, err)
	return l
}

// fenced is a register that refuses a write with a lower token than it has seen, as
// what a lock protects should.
type fenced struct {
	t *testing.T

	mu                sync.Mutex
	highest           uint64
	granted           []grant
	accepted, refused int
}

// grant is when a token was asked for, and when it was had.
type grant struct {
	asked, had time.Time
	token      uint64
}

var errStale = errors.New("a higher token has been here")

func (f *fenced) contend(url string, clients int, opts ...holdfast.ClientOption) (stop func()) {
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

// round takes the lock for some renewals' time and writes all the while.
func (f *fenced) round(ctx context.Context, client *holdfast.Client) {
	asked := time.Now()
	h, err := client.TryLock(ctx, "register")
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	f.note(grant{asked, time.Now(), h.Token()})
	for range 10 {
		if h.Context().Err() != nil || f.write(h.Token()) != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = h.Release(ctx) // or its lease expires
}

func (f *fenced) note(g grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted = append(f.granted, g)
}

func (f *fenced) write(token uint64) error {
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

// more waits until n more tokens have been granted.
func (f *fenced) more(n int) {
	f.t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.granted)
	}
	want := count() + n
	eventually(f.t, "more grants", func() bool { return count() >= want })
}

// check compares each grant with those that were over before it was asked for.
func (f *fenced) check() {
	f.t.Helper()
	tokens := map[uint64]bool{}
	for i, g := range f.granted {
		if tokens[g.token] {
			f.t.Errorf("token %d was granted twice", g.token)
		}
		tokens[g.token] = true
		for _, earlier := range f.granted[:i] {
			if earlier.had.Before(g.asked) && earlier.token >= g.token {
				f.t.Errorf("token %d was asked for after %d was granted", g.token, earlier.token)
			}
		}
	}
	f.t.Logf("%d grants, %d writes, %d with a lower token refused", len(f.granted), f.accepted, f.refused)
}
