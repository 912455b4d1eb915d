package cas_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// randomDelay makes times of calls: mostly short, and sometimes long.
func randomDelay(seed uint64) func() time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(20) == 0 {
			return time.Duration(random.Int64N(int64(time.Second)))
		}
		return time.Duration(random.Int64N(int64(5 * time.Millisecond)))
	}
}

// referee checks what clients hold.
type referee struct {
	t    *testing.T
	mu   sync.Mutex
	ends time.Time // when the present hold ends by its holder's own clock
	who  driver.LeaseID
	last uint64
	n    int
}

// hold notes a grant or a renewal. sent is the moment before the request.
func (r *referee) hold(lease driver.Lease, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if lease.ID != r.who {
		if now.Before(r.ends) {
			r.t.Errorf("%v was granted %v before the end of another's lease", lease, r.ends.Sub(now))
		}
		if lease.Token <= r.last {
			r.t.Errorf("token %d after %d", lease.Token, r.last)
		}
		r.n++
		r.who, r.last = lease.ID, lease.Token
	}
	r.ends = sent.Add(lease.TTL)
}

// end notes that a holder stops its work.
func (r *referee) end(lease driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.who == lease.ID {
		r.ends = time.Time{}
	}
}

// client acquires, renews and releases a lock, as a Client does. It may forget a lock, as a process that dies.
func client(ctx context.Context, l *cas.Locker, r *referee, id string, random *rand.Rand) {
	waiter := driver.NewWaiterID()
	for round := 0; ctx.Err() == nil; round++ {
		ttl := time.Duration(3+random.IntN(5)) * time.Second
		req := request("n", fmt.Sprint(id, " ", round), ttl)
		req.QueueFor, req.Waiter = time.Minute, waiter
		woken := make(chan struct{}, 1)
		stop := func() {}
		if can := l.Capabilities(); can.Queue != nil {
			stop = can.Waker.Wake("n", waiter, func(driver.Wakeup) {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
		}
		var lease driver.Lease
		var sent time.Time
		err := castest.ErrNoAnswer
		for err != nil && ctx.Err() == nil {
			sent = time.Now()
			if lease, err = l.TryAcquire(ctx, req); err != nil {
				select {
				case <-woken:
				case <-time.After(time.Duration(50+random.IntN(2000)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}
		stop()
		if err != nil {
			return
		}
		if time.Now().Before(sent.Add(ttl)) {
			r.hold(lease, sent)
		}
		ends := sent.Add(ttl)
		for range random.IntN(4) {
			time.Sleep(time.Duration(random.Int64N(int64(ttl) / 3)))
			sent := time.Now()
			if sent.After(ends) {
				break
			}
			limited, cancel := context.WithDeadline(ctx, ends)
			renewed, err := l.Renew(limited, lease)
			cancel()
			if err == nil && random.IntN(8) > 0 { // as after a lost answer, it may keep the old State
				lease.State = renewed.State
			}
			if errors.Is(err, driver.ErrLost) && time.Now().Before(ends) {
				r.t.Errorf("%v was lost although its lease lasts until %v", lease, time.Until(ends))
			}
			if err == nil && time.Now().Before(ends) {
				r.hold(lease, sent)
				ends = sent.Add(ttl)
			}
		}
		r.end(lease)
		if random.IntN(4) == 0 {
			continue // it dies
		}
		if random.IntN(4) == 0 {
			lease.State = driver.LeaseState{} // another process releases it
		}
		for l.Release(ctx, lease) != nil && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// Several clients compete over a store that loses, delays and doubles writes: at most one holds the lock at a time, tokens
// rise, and the lock stays stuck for nobody.
func TestRandomSchedules(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 4
	}
	for _, expiry := range []driver.Expiry{driver.ByServer, driver.ByObservation} {
		t.Run(expiry.String(), func(t *testing.T) {
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					if expiry == driver.ByObservation {
						store.now = nil
					}
					store.delay = randomDelay(seed)
					faulty := castest.Faulty(t, store, castest.Random(seed))
					r := &referee{t: t}
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
					defer cancel()
					var wg sync.WaitGroup
					for i := range 4 {
						l := open(t, faulty, cas.Config{Info: driver.Info{Expiry: expiry, History: 3}, Watch: store.watch,
							CallLimit: 2 * time.Second})
						wg.Go(func() { client(ctx, l, r, fmt.Sprint("client ", i), rand.New(rand.NewPCG(seed, uint64(i)+10))) })
					}
					wg.Wait()
					time.Sleep(10 * time.Second) // late writes arrive
					if r.n < 5 {
						t.Errorf("%d grants in three minutes", r.n)
					}
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Waiters that send a request only when they are woken, or when the time of a reservation is over, are all served.
func TestNoLostWakeUp(t *testing.T) {
	const clients, rounds = 4, 5
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			store.delay = randomDelay(seed)
			var wg sync.WaitGroup
			for i := range clients {
				l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
				waiter := driver.NewWaiterID()
				wg.Go(func() {
					for round := range rounds {
						woken := make(chan time.Duration, 100)
						stop := l.Wake("n", waiter, func(up driver.Wakeup) { woken <- up.After })
						req := request("n", fmt.Sprint(i, " ", round), time.Hour)
						req.QueueFor, req.Waiter = 2*time.Hour, waiter
						lease, err := l.TryAcquire(t.Context(), req)
						for err != nil {
							var held *driver.HeldError
							if !errors.As(err, &held) {
								t.Errorf("acquire: %v", err)
								break
							}
							again := (<-chan time.Time)(nil)
							if held.Reserved {
								again = time.After(held.Record.Remaining + time.Millisecond)
							} else if held.Record.Position == 0 { // too many others were faster to write theirs
								again = time.After(time.Second)
							}
							select {
							case <-again:
							case delay := <-woken:
								time.Sleep(delay)
							case <-time.After(30 * time.Minute):
								t.Errorf("client %d of seed %d was not woken", i, seed)
							}
							lease, err = l.TryAcquire(t.Context(), req)
						}
						stop()
						time.Sleep(100 * time.Millisecond)
						if err := l.Release(t.Context(), lease); err != nil {
							t.Errorf("release: %v", err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
