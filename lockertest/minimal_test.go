package lockertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestMinimalLocker runs the suite on a Locker that can do and report little, like a lease on a
// blob: TTLs of whole seconds from 15 to 60; no time left, TTL or revision in its records; no
// capabilities.
func TestMinimalLocker(t *testing.T) {
	w := newFixture()
	cfg := w.config(minimal)
	s := newSuite(t, cfg)
	if s.cfg.TTL != 15*time.Second {
		t.Errorf("the suite chose a TTL of %v, want the shortest, 15s", s.cfg.TTL)
	}
	for _, c := range clauses() {
		if failures := s.failuresOf(t, c); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
}

// TestForgetfulLocker runs the suite on a Locker whose locks leave nothing when they are free, as a key that
// a store removes at its expiry. It declares that, so it passes.
func TestForgetfulLocker(t *testing.T) {
	w := newFixture()
	var mu sync.Mutex // the record goes in the same step
	s := newSuite(t, w.config(func(w *fixture, f *faulty) {
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			name := call.Concerned().Name
			if name == "" {
				return next(ctx, call)
			}
			mu.Lock()
			defer mu.Unlock()
			forget := func() {
				if w.record(name).State == driver.StateFree {
					w.store.Remove(name)
				}
			}
			if call.Method != driver.MethodRenew {
				forget()
			}
			a := next(ctx, call)
			if call.Method == driver.MethodRelease || call.Method == driver.MethodBreakNow {
				forget()
			}
			a.Record.History = nil
			return a
		})
		stallable(w, f)
		f.info = func(i driver.Info) driver.Info {
			i.Free, i.History, i.Turn = driver.FreeRecord{}, 0, 0
			return i
		}
		all := f.capabilities
		f.capabilities = func(c driver.Capabilities) driver.Capabilities {
			if all != nil {
				c = all(c)
			}
			c.Waker, c.Queue = nil, nil // the queue goes with the record
			return c
		}
	}))
	for _, c := range clauses() {
		if failures := s.failuresOf(t, c); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
}

// failuresOf runs a clause, unless it is left out.
func (s *suite) failuresOf(t *testing.T, c clause) []string {
	t.Helper()
	if !s.can(c.needs) {
		return nil
	}
	return s.await(s.start(t, c))
}

// minimal makes the Locker of TestMinimalLocker.
func minimal(w *fixture, f *faulty) {
	stallable(w, f)
	limits := driver.Limits{
		MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second,
		MaxName: 200, MaxOwner: 100, MaxData: 1000, Poll: 5 * time.Second,
	}
	f.info = func(driver.Info) driver.Info {
		return driver.Info{Backend: "memory", Limits: limits, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten, FixedTTL: true}
	}
	f.capabilities = func(driver.Capabilities) driver.Capabilities { return driver.Capabilities{} }
	onlyBasics := func(r driver.Record) driver.Record {
		return driver.Record{Name: r.Name, State: r.State, Owner: r.Owner, Token: r.Token, Data: r.Data}
	}
	f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
		if err := req.Validate(driver.Info{Limits: limits}); err != nil {
			return driver.Lease{}, opErr(req.Name, err)
		}
		req.Replace = driver.Revision{}
		lease, err := f.Locker.TryAcquire(ctx, req)
		var held *driver.HeldError
		if errors.As(err, &held) {
			return lease, heldErr(onlyBasics(held.Record))
		}
		return lease, err
	}
	f.renew = func(ctx context.Context, l driver.Lease) error {
		if err := errors.Join(driver.ValidateName(l.Name, limits), driver.ValidateTTL(l.TTL, limits)); err != nil {
			return opErr(l.Name, err)
		}
		return errOf(f.Locker.Renew(ctx, l))
	}
	f.release = func(ctx context.Context, l driver.Lease) error {
		if err := driver.ValidateName(l.Name, limits); err != nil {
			return opErr(l.Name, err)
		}
		return f.Locker.Release(ctx, l)
	}
	f.inspect = func(ctx context.Context, name string) (driver.Record, error) {
		if err := driver.ValidateName(name, limits); err != nil {
			return driver.Record{}, opErr(name, err)
		}
		r, err := f.Locker.Inspect(ctx, name)
		return onlyBasics(r), err
	}
}

// TestNothingIsGranted runs the suite on a Locker that fails each request, as the first version of a driver may
// do. The author sees failures, not a suite that never ends.
func TestNothingIsGranted(t *testing.T) {
	w := newFixture()
	cfg := w.config(func(w *fixture, f *faulty) {
		stallable(w, f)
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			if _, err := f.Locker.Inspect(ctx, req.Name); err != nil { // it is closed, or the name is not valid
				return driver.Lease{}, err
			}
			return driver.Lease{}, opErr(req.Name, errors.New("syntax error"))
		}
	})
	cfg.Slack = 100 * time.Millisecond
	s := newSuite(t, cfg)
	for _, c := range clauses() {
		if !s.can(c.needs) {
			continue
		}
		select {
		case <-s.start(t, c).done:
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", c.name)
		}
	}
}
