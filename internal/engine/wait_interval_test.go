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
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/leases"
)

// refusing is a Locker that refuses every request with the same record.
type refusing struct {
	holdfast.Locker
	record holdfast.Record
}

func (l refusing) TryAcquire(context.Context, driver.Request) (holdfast.Lease, error) {
	return holdfast.Lease{}, &holdfast.HeldError{Record: l.record}
}

// A backend that says again and again that the holder's time is over, and refuses all the
// same, is asked at the poll interval in the end.
func TestWaiterKeepsItsPaceWhateverTheRecordSays(t *testing.T) {
	const poll, during = 5 * time.Second, time.Hour
	for name, record := range map[string]holdfast.Record{
		"nothing left":    {RemainingKnown: true},
		"overdue":         {RemainingKnown: true, Remaining: -time.Hour},
		"an instant":      {RemainingKnown: true, Remaining: time.Nanosecond},
		"stuck":           {TTL: time.Second, Revision: driver.NewRevision("r")},
		"stuck, known":    {TTL: time.Second, Revision: driver.NewRevision("r"), RemainingKnown: true, Remaining: time.Hour},
		"broken":          {Broken: true, RemainingKnown: true},
		"nothing is told": {},
	} {
		record.Name, record.State = "job", driver.StateHeld
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFaulty(t, refusing{memory.New(), record}, nil)
			f.NoBatchReads = true
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(poll))
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			m, err := leases.New(c)
			if err != nil {
				t.Fatal(err)
			}
			waited := f.Count(locktest.OpAcquire)
			if err := m.Add("job"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(during)
			managed := f.Count(locktest.OpAcquire) - waited
			most := int(during/(poll*3/5)) + 20 // jittered by a quarter, and some at the beginning
			if waited > most || managed > most || waited < 100 || managed < 100 {
				t.Errorf("%s: asked %d times by Lock, %d times by Manage, want at most %d", name, waited, managed, most)
			}
		})
	}
}

// curt refuses with ErrHeld and no record, and does not replace.
type curt struct{ *locktest.Faulty }

func (s curt) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	req.Replace = driver.Revision{}
	l, err := s.Faulty.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = holdfast.ErrHeld
	}
	return l, err
}

// So it is with a driver whose refusals say nothing, while its reads show a stuck holder.
func TestWaiterKeepsItsPaceWithCurtRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, deadAhead(t, "job").Locker(), func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: time.Millisecond} })
		c := locktest.NewClient(t, curt{f})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "job", holdfast.WithPollInterval(5*time.Second)); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Lock: %v", err)
		}
		if n := f.Count(locktest.OpAcquire); n > 60 {
			t.Errorf("%d attempts in two minutes", n)
		}
	})
}

// early refuses with a holder whose time is over, while it is on.
type early struct {
	holdfast.Locker
	on atomic.Bool
}

func (s *early) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := s.Locker.TryAcquire(ctx, req)
	var held *holdfast.HeldError
	if s.on.Load() && errors.As(err, &held) {
		r := held.Record
		r.Remaining = 0
		return l, &holdfast.HeldError{Record: r}
	}
	return l, err
}

func (s *early) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// A waiter that was slowed down by odd refusals is as quick as any when they are over.
func TestWaiterRecoversItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		store := memory.NewStore()
		wire := &locktest.Link{Locker: store.Locker()}
		locktest.MustLock(t, locktest.NewClient(t, wire), "job", holdfast.WithTTL(ttl))
		s := &early{Locker: store.Locker()}
		c := locktest.NewClient(t, s)
		s.on.Store(true)
		got := make(chan time.Time, 1)
		go func() {
			h, err := c.Lock(context.Background(), "job", holdfast.WithTTL(ttl), holdfast.WithPollInterval(5*time.Minute))
			if err == nil {
				got <- time.Now()
				_ = h.Release(context.Background())
			}
		}()
		time.Sleep(3 * time.Minute)
		s.on.Store(false)
		time.Sleep(30 * time.Minute)
		wire.Cut.Store(true) // the holder dies
		died := time.Now()
		if took := (<-got).Sub(died); took > ttl+ttl/2 {
			t.Errorf("taken over %v after the holder's death, TTL %v", took, ttl)
		}
		wire.Cut.Store(false)
	})
}

// times notes when calls of one kind were made, since the start of the test.
type times struct {
	mu    sync.Mutex
	start time.Time
	list  []time.Duration
}

func newTimes() *times { return &times{start: time.Now()} }

func (s *times) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, time.Since(s.start))
}

func (s *times) all() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Pauses between polls differ, by up to a fifth either way, so that processes that began
// together do not go on asking together.
func TestPollsAreJittered(t *testing.T) {
	for _, noLooks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job", holdfast.WithTTL(10*time.Minute))
			asked := newTimes()
			f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				asked.note()
				return locktest.Fault{}
			})
			f.NoBatchReads = noLooks
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			list := asked.all()
			var pauses []time.Duration
			for i := range list[1:] {
				pauses = append(pauses, list[i+1]-list[i])
			}
			if len(pauses) < 20 || slices.Min(pauses) < 8*time.Second || slices.Max(pauses) > 12*time.Second {
				t.Fatalf("no looks %v: pauses %v, want 8 s to 12 s", noLooks, pauses)
			}
			if spread := slices.Max(pauses) - slices.Min(pauses); spread < 100*time.Millisecond {
				t.Errorf("no looks %v: the pauses differ by %v", noLooks, spread)
			}
		})
	}
}

// So do the pauses of one who polls a backend that fails.
func TestPollsOfAFailingBackendAreJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := newTimes()
		c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpAcquire {
				asked.note()
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		}), holdfast.WithPollInterval(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		list := asked.all()
		var pauses []time.Duration
		for i := range list[6:] { // the first pauses are shorter than the poll interval
			pauses = append(pauses, list[i+6]-list[i+5])
		}
		if len(pauses) < 20 || slices.Min(pauses) < 800*time.Millisecond || slices.Max(pauses) > 1200*time.Millisecond {
			t.Fatalf("pauses %v, want 0.8 s to 1.2 s", pauses)
		}
		if spread := slices.Max(pauses) - slices.Min(pauses); spread < 10*time.Millisecond {
			t.Errorf("the pauses differ by %v", spread)
		}
	})
}

// Many processes that wait for the end of the same lease do not ask in the same instant.
func TestWaitersSpreadAtAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, waiters = 20 * time.Second, 20
		store := memory.NewStore()
		if _, err := store.Locker().TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl+time.Second)
		defer cancel()
		asked := newTimes()
		var wg sync.WaitGroup
		for range waiters {
			c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire && n == 2 {
					asked.note()
				}
				return locktest.Fault{}
			}), holdfast.WithPollInterval(time.Hour))
			wg.Go(func() { _, _ = c.Lock(ctx, "job") })
		}
		wg.Wait()
		list := asked.all()
		if len(list) != waiters || slices.Min(list) <= ttl || slices.Max(list) > ttl+11*time.Millisecond {
			t.Fatalf("asked after %v, want within 11 ms of the expiry", list)
		}
		if spread := slices.Max(list) - slices.Min(list); spread < time.Millisecond {
			t.Errorf("all ask within %v", spread)
		}
	})
}

// A backend that has recovered is asked at the poll interval again.
func TestFailuresAreForgottenAfterAnAnswer(t *testing.T) {
	for _, noLooks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire && n <= 5 {
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			})
			f.NoBatchReads = noLooks
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := f.Total(); n < 50 || n > 90 {
				t.Errorf("no looks %v: %d calls in 10 minutes at a poll interval of 10 s", noLooks, n)
			}
		})
	}
}

// A record of which a read cannot tell the state does not count as held: the waiter asks.
func TestUnknownStateIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		c := locktest.NewClient(t, unsure{locktest.NewFaulty(t, store.Locker(), nil)}, holdfast.WithPollInterval(10*time.Second))
		time.AfterFunc(time.Minute, func() { _ = h.Release(context.Background()) })
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		if d := time.Since(start); err != nil || d < time.Minute || d > time.Minute+12*time.Second {
			t.Errorf("granted after %v, want within a poll interval of the release: %v", d, err)
		}
	})
}

// unsure is a backend whose reads tell nothing but the name, and whose refusals do not tell
// how long the holder has left.
type unsure struct{ *locktest.Faulty }

func (u unsure) Capabilities() driver.Capabilities {
	a := u.Faulty.Capabilities()
	a.BatchInspector = u
	return a
}

func (u unsure) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	return locktest.Anonymous{Locker: u.Faulty}.TryAcquire(ctx, req)
}

func (unsure) InspectBatch(_ context.Context, names []string) ([]holdfast.Record, []error) {
	records := make([]holdfast.Record, len(names))
	for i, name := range names {
		records[i].Name = name
	}
	return records, make([]error, len(names))
}
