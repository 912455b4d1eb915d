package castest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// recorded is a test whose errors are kept.
type recorded struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (r *recorded) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// change changes what a call returns. n is that of the test.
type change func(n *atomic.Uint64, l driver.Lease, err error) (driver.Lease, error)

// competing is a Locker whose calls take a moment. acquire and renew, if not nil, change what they return.
type competing struct {
	driver.Locker
	n              *atomic.Uint64
	acquire, renew change
}

func (c competing) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := c.Locker.TryAcquire(ctx, req)
	time.Sleep(time.Millisecond)
	if c.acquire == nil {
		return l, err
	}
	return c.acquire(c.n, l, err)
}

func (c competing) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	l, err := c.Locker.Renew(ctx, lease)
	time.Sleep(time.Millisecond)
	if c.renew == nil {
		return l, err
	}
	return c.renew(c.n, l, err)
}

// Each violation is an error of the test, and a lock without one passes. Grants that have no answer do not count as held.
func TestCompete(t *testing.T) {
	const ttl = 2 * time.Second
	for what, c := range map[string]struct {
		acquire, renew change
		fault          error
		want           string // what errors have; empty if there are none
		also           string // what other errors may have, depending on which client is faster
		rounds         int64
		names          []string
	}{
		"right": {rounds: 2},
		"lost answers": {rounds: 2, acquire: func(n *atomic.Uint64, l driver.Lease, err error) (driver.Lease, error) {
			if n.Add(1)%3 == 0 {
				return driver.Lease{}, errors.New("no answer")
			}
			return l, err
		}},
		"two holders": {rounds: 2, want: "another client holds", also: "token ", acquire: func(n *atomic.Uint64, l driver.Lease,
			_ error) (driver.Lease, error) {
			l.Token = n.Add(1)
			return l, nil
		}, renew: func(_ *atomic.Uint64, l driver.Lease, _ error) (driver.Lease, error) { return l, nil }},
		"a token that falls": {rounds: 2, want: "token ", acquire: func(n *atomic.Uint64, l driver.Lease, err error) (driver.Lease, error) {
			l.Token = 1000 - n.Add(1)/2
			return l, err
		}},
		"a loss": {rounds: 2, want: "has lost castest-compete", renew: func(_ *atomic.Uint64, l driver.Lease, _ error) (driver.Lease, error) {
			return l, driver.ErrLost
		}},
		"no grant": {want: "0 grants of castest-compete within 4s, want 20", acquire: func(*atomic.Uint64, driver.Lease, error) (driver.Lease,
			error) {
			return driver.Lease{}, &driver.HeldError{}
		}},
		"no grant after": {rounds: 1, want: "want 20", acquire: func(n *atomic.Uint64, l driver.Lease, err error) (driver.Lease, error) {
			if err == nil && n.Add(1) > 30 {
				err = errors.New("no server")
			}
			return l, err
		}},
		"two locks": {rounds: 2, names: []string{"a", "b"}},
		"no grant of the second lock": {names: []string{"a", "b"}, want: "0 grants of b within 4s", acquire: func(_ *atomic.Uint64,
			l driver.Lease, err error) (driver.Lease, error) {
			if l.Name == "b" {
				err = &driver.HeldError{}
			}
			return l, err
		}},
		"a fault that fails": {rounds: 1, want: "fault 0: no process", fault: errors.New("no process")},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, r := memory.NewStore(), &recorded{TB: t}
			var n atomic.Uint64
			var lockers []driver.Locker
			for range 3 {
				lockers = append(lockers, competing{store.Locker(), &n, c.acquire, c.renew})
			}
			var rounds int64
			castest.Compete(r, castest.Competition{Names: c.names, Lockers: lockers, TTL: ttl, Faults: 2, Fault: func(round int) error {
				if int64(round) != rounds {
					t.Errorf("%s: round %d after %d", what, round, rounds)
				}
				rounds++
				time.Sleep(100 * time.Millisecond)
				return c.fault
			}})
			wanted := 0
			for _, text := range r.errors {
				switch {
				case c.want != "" && strings.Contains(text, c.want):
					wanted++
				case c.also == "" || !strings.Contains(text, c.also):
					t.Errorf("%s: %s", what, text)
				}
			}
			if (wanted > 0) != (c.want != "") || rounds != c.rounds {
				t.Errorf("%s: %d of %d errors, %d faults", what, wanted, len(r.errors), rounds)
			}
		})
	}
}
