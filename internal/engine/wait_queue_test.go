package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// process is a client of a store with a queue, whose requests take as long as those to a server.
func process(t *testing.T, store *memory.Store, opts ...holdfast.ClientOption) (*holdfast.Client, *locktest.Faulty) {
	t.Helper()
	f := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
		return locktest.Fault{Delay: 2 * time.Millisecond}
	})
	f.Watcher, f.Queue = true, true
	return locktest.NewClient(t, f, opts...), f
}

// deadHolder takes a lock that is never renewed.
func deadHolder(t *testing.T, store *memory.Store, name string, ttl time.Duration) {
	t.Helper()
	if _, err := store.Locker().TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID("dead"), TTL: ttl}); err != nil {
		t.Fatal(err)
	}
}

// deadWaiter enters the queue of a lock and never comes.
func deadWaiter(t *testing.T, store *memory.Store, name string) {
	t.Helper()
	req := driver.Request{Name: name, ID: driver.NewLeaseID("dead waiter"), TTL: time.Minute, Waiter: driver.NewWaiterID(),
		QueueFor: time.Hour}
	if _, err := store.Locker().TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
}

// The waiters of several processes are served in the order in which they came, also while each
// comes again after its turn.
func TestProcessesAreServedInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, rounds = 20, 5
		store := memory.NewStore()
		first, _ := process(t, store)
		h := locktest.MustLock(t, first, "job")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range processes {
			c, _ := process(t, store)
			wg.Go(func() {
				for range rounds {
					h, err := c.Lock(t.Context(), "job")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					_ = h.Release(t.Context())
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		begin := time.Now()
		_ = h.Release(t.Context())
		wg.Wait()
		for i, who := range order {
			if who != i%processes {
				t.Fatalf("served in the order %v", order)
			}
		}
		if took := time.Since(begin) / (processes * rounds); took > 20*time.Millisecond {
			t.Errorf("%v for each hold of 10 ms", took)
		}
	})
}

// If the holder dies while many processes wait, the first takes over at the expiry, and most of the
// others send nothing then.
func TestNoStampedeAtAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, waiters = 30 * time.Second, 200
		store := memory.NewStore()
		deadHolder(t, store, "job", ttl)
		start := time.Now()
		requests := newTimes()
		var granted []time.Duration
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range waiters {
			c, f := process(t, store)
			f.Check = func(_ context.Context, op string) { requests.note() }
			wg.Go(func() {
				if _, err := c.Lock(ctx, "job"); err == nil {
					mu.Lock()
					granted = append(granted, time.Since(start))
					mu.Unlock()
				}
			})
		}
		time.Sleep(ttl + time.Second)
		near := slices.DeleteFunc(requests.all(), func(at time.Duration) bool { return at < ttl || at > ttl+100*time.Millisecond })
		mu.Lock()
		if len(granted) != 1 || granted[0] < ttl || granted[0] > ttl+10*time.Millisecond {
			t.Errorf("granted after %v, TTL %v", granted, ttl)
		}
		mu.Unlock()
		if len(near) > 12 {
			t.Errorf("%d calls in the 100 ms after the expiry", len(near))
		}
		cancel()
		wg.Wait()
	})
}

// Dead waiters at the head of the queue delay the others by a bounded time, after a release and
// after an expiry.
func TestDeadWaitersCostBoundedTime(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for dead, most := range map[int]time.Duration{1: driver.TurnLength, 2: driver.MaxTurn, 5: driver.MaxTurn} {
			synctest.Test(t, func(t *testing.T) {
				const ttl = 30 * time.Second
				store := memory.NewStore()
				first, _ := process(t, store)
				var release func()
				if crash {
					deadHolder(t, store, "job", ttl)
				} else {
					h := locktest.MustLock(t, first, "job")
					release = func() { _ = h.Release(t.Context()) }
				}
				for range dead {
					deadWaiter(t, store, "job")
				}
				c, _ := process(t, store)
				free := time.Now().Add(ttl)
				if !crash {
					time.AfterFunc(time.Minute, func() { free = time.Now(); release() })
				}
				locktest.MustLock(t, c, "job")
				late := time.Since(free)
				if dead >= driver.WokenWaiters && !crash {
					most = 25 * time.Second // nobody wakes it, so it comes at the poll interval
				}
				if late > most+time.Second {
					t.Errorf("crash %v: %d dead waiters delayed the grant by %v", crash, dead, late)
				}
			})
		}
	}
}

// lateReads is a Locker whose Queue calls for a request before the majority has the release, as the
// hints on MongoDB do: reads still show the holder.
type lateReads struct {
	*locktest.Faulty
	behind  *atomic.Bool
	held    driver.Record
	release func()
}

func (l lateReads) Capabilities() driver.Capabilities {
	a := l.Faulty.Capabilities()
	a.BatchInspector, a.Waker = l, l
	return a
}

func (l lateReads) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, errs := l.Faulty.Capabilities().BatchInspector.InspectBatch(ctx, waiter, names)
	if l.behind.Load() {
		for i := range records {
			records[i] = l.held
		}
	}
	return records, errs
}

// Wake calls at once: the release came between the request and Wake.
func (l lateReads) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	l.release()
	wake(driver.Wakeup{})
	return func() {}
}

// A waiter whose turn it is sends a request, although a read would still show the holder. Otherwise
// it misses its turn, loses its position, and waits until its next poll.
func TestTurnLeadsToARequest(t *testing.T) {
	take := map[string]func(*testing.T, *holdfast.Client){
		"Lock": func(t *testing.T, c *holdfast.Client) { _ = locktest.MustLock(t, c, "job").Release(t.Context()) },
		"LeaseManager": func(t *testing.T, c *holdfast.Client) {
			m := locktest.NewManager(t, c)
			locktest.MustAdd(t, m, "job")
			for len(m.Leases()) == 0 {
				time.Sleep(time.Millisecond)
			}
		},
	}
	for name, take := range take {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			first, holder := process(t, store)
			h := locktest.MustLock(t, first, "job")
			_, f := process(t, store)
			l := lateReads{Faulty: f, behind: new(atomic.Bool)}
			var err error
			if l.held, err = holder.Inspect(t.Context(), "job"); err != nil {
				t.Fatal(err)
			}
			var released time.Time
			l.held.Waiters, l.held.Position = 1, 1
			l.release = func() {
				l.behind.Store(true)
				_ = h.Release(t.Context())
				released = time.Now()
			}
			take(t, locktest.NewClient(t, l))
			if late := time.Since(released); late > driver.TurnLength/2 {
				t.Errorf("granted %v after the release", late)
			}
		})
	}
}

// positions counts the requests that give positions in queues, and those positions that ended before they were refreshed.
type positions struct {
	*locktest.Faulty
	mu           sync.Mutex
	ends         map[string]time.Time
	asked, ended int
}

func (p *positions) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	p.mu.Lock()
	ends, waits := p.ends[req.Name]
	if now := time.Now(); waits && ends.Before(now) {
		p.ended++
	}
	p.asked++
	p.ends[req.Name] = time.Now().Add(req.QueueFor)
	p.mu.Unlock()
	return p.Faulty.TryAcquire(ctx, req)
}

func (p *positions) take() (asked, ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, p.asked = p.asked, 0
	return asked, p.ended
}

// A process that waits for many names refreshes its positions rarely, and loses none. The requests of Lock for the first names asked
// for short positions, when there were few names; they are refreshed in time, at the rate at which positions are refreshed later.
func TestManyPositionsAreRefreshedRarely(t *testing.T) {
	for what, manages := range map[string]bool{"Lock": false, "LeaseManager": true} {
		locktest.Bubble(t, what, func(t *testing.T) {
			const count, during = 1000, time.Hour
			store := memory.NewStore()
			names := locktest.Names("job-", count)
			for _, name := range names {
				deadHolder(t, store, name, 24*time.Hour)
			}
			_, f := process(t, store)
			p := &positions{Faulty: f, ends: map[string]time.Time{}}
			c := locktest.NewClient(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			if manages {
				locktest.MustAdd(t, locktest.NewManager(t, c), names...)
			} else {
				for _, name := range names {
					wg.Go(func() { _, _ = c.Lock(ctx, name) })
				}
			}
			time.Sleep(time.Second)
			if asked, _ := p.take(); asked != count && !manages {
				t.Errorf("%d requests at first", asked)
			}
			for range 7 { // minutes, before most positions are refreshed together
				time.Sleep(time.Minute)
				if asked, _ := p.take(); asked > 3*32 && !manages {
					t.Errorf("%d requests in a minute", asked)
				}
			}
			requests, calls := f.Count(locktest.OpAcquire), f.Total()
			time.Sleep(33 * time.Minute)
			if asked, _ := p.take(); asked > 5*count && !manages {
				t.Errorf("%d requests in 33 minutes", asked)
			}
			time.Sleep(during - 33*time.Minute)
			if n := f.Count(locktest.OpAcquire) - requests; n < count || n > count*8 {
				t.Errorf("%d requests in %v for %d names", n, during, count)
			}
			if n := f.Total() - calls; n > count*8+1000 {
				t.Errorf("%d calls in %v for %d names", n, during, count)
			}
			if _, ended := p.take(); ended > 0 {
				t.Errorf("%d positions ended before they were refreshed", ended)
			}
			for _, name := range names {
				if at, err := f.Position(t.Context(), name); err != nil || at != 1 {
					t.Fatalf("%s: position %d, %v", name, at, err)
				}
			}
			cancel()
			wg.Wait()
		})
	}
}
