package engine_test

import (
	"context"
	"errors"
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

// A request that was granted, though its reply was lost, and whose lease was broken then, is
// refused like any other's. It does not keep its own waiter from the lock.
func TestWaiterBehindItsOwnBrokenGrant(t *testing.T) {
	ways := map[string]func(c *holdfast.Client) error{
		"Lock": func(c *holdfast.Client) error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
			defer cancel()
			_, err := c.Lock(ctx, "job")
			return err
		},
		"Manage": func(c *holdfast.Client) error {
			m, err := leases.New(c)
			if err != nil {
				return err
			}
			if err := m.Add("job"); err != nil {
				return err
			}
			for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
				if len(m.Leases()) == 1 {
					return nil
				}
			}
			return errors.New("never managed")
		},
	}
	for name, wait := range ways {
		for _, steps := range []time.Duration{0, 24 * time.Hour} {
			for _, noLooks := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					var ahead atomic.Int64
					ahead.Store(int64(steps))
					store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
					breaker := store.Locker()
					f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
						if op != locktest.OpAcquire || n > 1 {
							return locktest.Fault{}
						}
						time.AfterFunc(time.Millisecond, func() {
							if err := breaker.Break(context.Background(), "job"); err != nil {
								t.Error(err)
							}
							ahead.Store(0)
						})
						return locktest.Fault{Lose: locktest.ErrInjected}
					})
					f.NoBatchReads = noLooks
					c := locktest.NewClient(t, f, holdfast.WithTTL(20*time.Second))
					start := time.Now()
					err := wait(c)
					if took := time.Since(start); err != nil || took > 30*time.Second {
						t.Errorf("%s, clock steps back by %v, no looks %v: after %v: %v", name, steps, noLooks, took, err)
					}
					if n := f.Count(locktest.OpAcquire); n > 12 {
						t.Errorf("%s, clock steps back by %v, no looks %v: %d requests", name, steps, noLooks, n)
					}
				})
			}
		}
	}
}

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
