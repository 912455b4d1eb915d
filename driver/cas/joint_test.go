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

var sharing = cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer},
	CallLimit: 5 * time.Second, ClockStep: time.Second}

// readers makes some grants of one lock.
func readers(t *testing.T, l *cas.Locker, n int, ttl time.Duration) (leases []driver.Lease) {
	t.Helper()
	for i := range n {
		lease := mustAcquire(t, l, reading("cache", fmt.Sprint("reader ", i), ttl))
		leases = append(leases, lease)
	}
	return leases
}

// Renewals of one lock's readers that come together share two writes: the first is alone, and the others wait for it. One
// that is lost is no error for the others, and no lease has a copy of the value of all.
func TestReadersShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.delay = func() time.Duration { return 20 * time.Millisecond }
		l := open(t, store, sharing)
		leases := readers(t, l, 50, time.Minute)
		leases[0].State = driver.LeaseState{} // of when it was alone: a write by it is refused, and counts
		mustRelease(t, l, leases[7])
		time.Sleep(20 * time.Second)
		before := store.puts
		var wg sync.WaitGroup
		for i, lease := range leases {
			if i == 1 {
				synctest.Wait() // the first is under way
			}
			wg.Go(func() {
				renewed, err := l.Renew(t.Context(), lease)
				if want := i == 7; errors.Is(err, driver.ErrLost) != want || !want && err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
				if size := len(renewed.State.Content()); size > 0 {
					t.Errorf("reader %d has a State of %d bytes", i, size)
				}
			})
		}
		wg.Wait()
		if n := store.puts - before; n != 2 {
			t.Errorf("%d writes", n)
		}
		r, err := l.Inspect(t.Context(), "cache")
		if err != nil || len(r.Holders) != 49 {
			t.Fatalf("%d holders, %v", len(r.Holders), err)
		}
		for _, h := range r.Holders {
			if h.Remaining < time.Minute { // a step of the clock longer than the TTL
				t.Errorf("token %d has %v left", h.Token, h.Remaining)
			}
		}
	})
}

// The time limit of one renewal is not that of those that wait for it, and the reverse. A renewal whose time is over while another sends it
// is not sent by its caller, who has gone: the rest do not wait for it.
func TestRenewalOutlivesThatOfAnotherReader(t *testing.T) {
	const long = 10 * time.Second
	for resumed, limits := range map[time.Duration][]time.Duration{
		2 * time.Second: {time.Second, time.Second, long, long, long},          // the first is under way, and the others wait
		4 * time.Second: {time.Second, 3 * time.Second, 2 * time.Second, long}, // the second sends for all, until after the third has gone
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			l := open(t, store, sharing)
			leases := readers(t, l, len(limits), time.Minute)
			resume, err := store.stall(t.Context(), "cache")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i, limit := range limits {
				ends := limit < long
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					if _, err := l.Renew(ctx, leases[i]); errors.Is(err, context.DeadlineExceeded) != ends || !ends && err != nil {
						t.Errorf("reader %d: %v", i, err)
					}
				})
				synctest.Wait()
			}
			time.Sleep(resumed)
			resume()
			wg.Wait()
			mustRenew(t, l, leases[0]) // afterwards
		})
	}
}

// Over a store that loses, delays and doubles writes, a renewal that was answered has extended the lease, also that of a
// caller that waited; and none hangs.
func TestRandomRenewalsOfReaders(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			store, next := newStore(), func() castest.Fault { return castest.Fault{} }
			faulty := castest.Faulty(t, store, func() castest.Fault { return next() })
			var lockers []*cas.Locker
			leases := map[*cas.Locker][]driver.Lease{}
			for i := range 2 {
				l := open(t, faulty, sharing)
				for j := range 8 {
					lease := mustAcquire(t, l, reading("cache", fmt.Sprint("reader ", i, j), 5*time.Minute))
					leases[l] = append(leases[l], lease)
				}
				lockers = append(lockers, l)
			}
			store.delay = randomDelay(seed)
			next = castest.Random(seed)
			var mu sync.Mutex
			ends := map[uint64]time.Time{} // by token
			answered := 0
			var wg sync.WaitGroup
			for i, l := range lockers {
				for j, lease := range leases[l] {
					random := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
					wg.Go(func() {
						for range 20 {
							time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(3*time.Second))))
							sent := time.Now()
							renewed, err := l.Renew(ctx, lease)
							if took := time.Since(sent); took > 20*time.Second {
								t.Errorf("a renewal took %v", took)
							}
							cancel()
							if errors.Is(err, driver.ErrLost) {
								t.Errorf("token %d is lost", lease.Token)
							}
							if err != nil {
								continue
							}
							lease = renewed
							mu.Lock()
							ends[lease.Token] = sent.Add(lease.TTL)
							answered++
							mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			time.Sleep(10 * time.Second) // late writes arrive
			r, err := lockers[0].Inspect(t.Context(), "cache")
			if err != nil || len(r.Holders) != 16 || answered < 100 {
				t.Fatalf("%d holders, %d answers, %v", len(r.Holders), answered, err)
			}
			for _, h := range r.Holders {
				if end := time.Now().Add(h.Remaining); end.Before(ends[h.Token].Add(-time.Millisecond)) {
					t.Errorf("the lease with token %d ends %v before its time", h.Token, ends[h.Token].Sub(end))
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
