package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// refusing is a Locker that refuses every request, with the same record. A holder whose TTL is the largest is never stuck.
type refusing struct {
	holdfast.Locker
	t      *testing.T
	record holdfast.Record
}

func (l refusing) TryAcquire(_ context.Context, req driver.Request) (holdfast.Lease, error) {
	if l.record.TTL == math.MaxInt64 && !req.Replace.IsZero() {
		l.t.Error("a waiter takes over from a live holder whose TTL is the largest")
	}
	return holdfast.Lease{}, &holdfast.HeldError{Record: l.record}
}

// If a backend refuses although its record says that the holder's time is over, requests become
// as rare as the poll interval.
func TestRequestsKeepToThePollIntervalWhateverTheRecordSays(t *testing.T) {
	const poll, during = 5 * time.Second, time.Hour
	for name, record := range map[string]holdfast.Record{
		"nothing left":  {RemainingKnown: true},
		"overdue":       {RemainingKnown: true, Remaining: -time.Hour},
		"an instant":    {RemainingKnown: true, Remaining: time.Nanosecond},
		"stuck":         {TTL: time.Second, Revision: driver.NewRevision("r")},
		"stuck, known":  {TTL: time.Second, Revision: driver.NewRevision("r"), RemainingKnown: true, Remaining: time.Hour},
		"broken":        {Broken: true, RemainingKnown: true},
		"nothing known": {},
		"ever":          {RemainingKnown: true, Remaining: math.MaxInt64}, // what time.Time.Sub saturates at
		"TTL for ever":  {TTL: math.MaxInt64, Revision: driver.NewRevision("r")},
	} {
		record.Name, record.State = "job", driver.StateHeld
		synctest.Test(t, func(t *testing.T) {
			f := locktest.NewFaulty(t, refusing{memory.New(), t, record}, nil)
			f.NoBatchReads = true
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(poll))
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			waited := f.Count(locktest.OpAcquire)
			locktest.MustAdd(t, locktest.NewManager(t, c), "job")
			time.Sleep(during)
			managed := f.Count(locktest.OpAcquire) - waited
			most := int(during/(poll*3/5)) + 20 // jitter, and some at the beginning
			if waited > most || managed > most || waited < 100 || managed < 100 {
				t.Errorf("%s: %d requests by Lock, %d by a LeaseManager, want at most %d", name, waited, managed, most)
			}
		})
	}
}

// bareRefusal refuses with ErrHeld and no record, and never replaces a stuck holder.
type bareRefusal struct{ *locktest.Faulty }

func (s bareRefusal) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	req.Replace = driver.Revision{}
	l, err := s.Faulty.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = holdfast.ErrHeld
	}
	return l, err
}

// The same holds for a driver whose refusals have no record while its reads show a stuck holder.
func TestRequestsKeepToThePollIntervalWithBareRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, stuckHolder(t, "job").Locker(),
			func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: time.Millisecond} })
		c := locktest.NewClient(t, bareRefusal{f})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "job", holdfast.WithPollInterval(5*time.Second)); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Lock: %v", err)
		}
		if n := f.Count(locktest.OpAcquire); n > 60 {
			t.Errorf("%d requests in two minutes", n)
		}
	})
}

// wrongRemaining refuses with a holder whose time is over, while it is on.
type wrongRemaining struct {
	holdfast.Locker
	on atomic.Bool
}

func (s *wrongRemaining) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := s.Locker.TryAcquire(ctx, req)
	var held *holdfast.HeldError
	if s.on.Load() && errors.As(err, &held) {
		r := held.Record
		r.Remaining = 0
		return l, &holdfast.HeldError{Record: r}
	}
	return l, err
}

func (s *wrongRemaining) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// A waiter that was slowed down by such refusals takes over in time once they have ended.
func TestWaiterTakesOverInTimeAfterWrongRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		store := memory.NewStore()
		wire := locktest.NewLink(store.Locker())
		locktest.MustLock(t, locktest.NewClient(t, wire), "job", holdfast.WithTTL(ttl))
		s := &wrongRemaining{Locker: store.Locker()}
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

// times notes when calls were made, since the start of the test.
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

// The intervals between polls differ by up to a fifth either way, so that processes that began
// together do not go on polling together. So it is where the backend fails.
func TestPollsAreJittered(t *testing.T) {
	for what, test := range map[string]struct {
		poll     time.Duration
		requests bool // no batch reads
		faults   locktest.Faults
		first    int // intervals that are shorter
	}{
		"reads":           {poll: 10 * time.Second},
		"requests":        {poll: 10 * time.Second, requests: true},
		"failed requests": {poll: time.Second, faults: locktest.Refuse(locktest.OpAcquire), first: 5},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store := memory.NewStore()
			deadHolder(t, store, "job", time.Hour)
			calls := newTimes()
			f := locktest.NewFaulty(t, store.Locker(), test.faults)
			f.Check, f.NoBatchReads = func(context.Context, string) { calls.note() }, test.requests
			ctx, cancel := context.WithTimeout(t.Context(), 40*test.poll)
			defer cancel()
			_, _ = locktest.NewClient(t, f, holdfast.WithPollInterval(test.poll)).Lock(ctx, "job")
			list := calls.all()
			var intervals []time.Duration
			for i := range list[1+test.first:] {
				intervals = append(intervals, list[i+1+test.first]-list[i+test.first])
			}
			if len(intervals) < 20 || slices.Min(intervals) < test.poll*4/5 || slices.Max(intervals) > test.poll*6/5 {
				t.Fatalf("intervals %v, want %v to %v", intervals, test.poll*4/5, test.poll*6/5)
			}
			if spread := slices.Max(intervals) - slices.Min(intervals); spread < test.poll/100 {
				t.Errorf("the intervals differ by %v", spread)
			}
		})
	}
}

// A failed request is never followed by one before its backoff, which grows, whatever wakes the waiter, and however often
// the backend wants to be polled: on a full disk every request fails.
func TestFailedRequestsKeepTheBackoff(t *testing.T) {
	const during = 9 * time.Minute
	limits := memory.New().Info().Limits
	limits.Poll = 100 * time.Millisecond
	timings := timing.Timing{TTL: 30 * time.Second}
	locktest.Rows(t, map[string]func(*testing.T, *holdfast.Client){
		"Lock": func(t *testing.T, c *holdfast.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); !errors.Is(err, locktest.ErrInjected) {
				t.Errorf("%v", err)
			}
		},
		"LeaseManager": func(t *testing.T, c *holdfast.Client) {
			if err := locktest.NewManager(t, c).Add("job"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(during)
		},
	}, func(t *testing.T, wait func(*testing.T, *holdfast.Client)) {
		calls := newTimes()
		l := locktest.Scripted{Locker: memory.New(), Allowed: &limits,
			OnAcquire: func(context.Context, driver.Request) (holdfast.Lease, error) {
				calls.note()
				return holdfast.Lease{}, locktest.ErrInjected
			},
			OnWatch: func(_ string, wake func()) (stop func()) {
				ctx, cancel := context.WithCancel(context.Background())
				var waking sync.WaitGroup
				waking.Go(func() {
					for ctx.Err() == nil {
						wake()
						time.Sleep(10 * time.Millisecond)
					}
				})
				return func() { cancel(); waking.Wait() }
			}}
		wait(t, locktest.NewClient(t, l, holdfast.WithTTL(timings.TTL)))
		list := calls.all()
		for i := range list[1:] {
			if got, least := list[i+1]-list[i], timings.Delay(i)*3/4; got < least {
				t.Fatalf("request %d came %v after the one before, want at least %v", i+2, got, least)
			}
		}
		if most := int(during/(timings.Delay(100)*3/4)) + 10; len(list) > most || len(list) < 100 {
			t.Errorf("%d requests in %v, want at most %d", len(list), during, most)
		}
	})
}

// Processes that wait for the expiry of the same lease do not send their requests in the same
// instant.
func TestWaitersAreSpreadAtAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, waiters = 20 * time.Second, 20
		store := memory.NewStore()
		if _, err := store.Locker().TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl+time.Second)
		defer cancel()
		calls := newTimes()
		var wg sync.WaitGroup
		for range waiters {
			c := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire && n == 2 {
					calls.note()
				}
				return locktest.Fault{}
			}, holdfast.WithPollInterval(time.Hour))
			wg.Go(func() { _, _ = c.Lock(ctx, "job") })
		}
		wg.Wait()
		list := calls.all()
		if len(list) != waiters || slices.Min(list) <= ttl || slices.Max(list) > ttl+11*time.Millisecond {
			t.Fatalf("requests after %v, want within 11 ms of the expiry", list)
		}
		if spread := slices.Max(list) - slices.Min(list); spread < time.Millisecond {
			t.Errorf("all requests within %v", spread)
		}
	})
}
