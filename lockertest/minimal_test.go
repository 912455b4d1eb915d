package lockertest

import (
	"context"
	"errors"
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
	cfg.RenewKeepsTTL = true
	s := newSuite(t, cfg)
	if s.cfg.TTL != 15*time.Second {
		t.Errorf("the suite chose a TTL of %v, want the shortest, 15s", s.cfg.TTL)
	}
	for _, c := range clauses() {
		if c.needs != nil && !c.needs(s) {
			continue
		}
		if failures := s.failures(t, c.name); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
}

// minimal makes the Locker of TestMinimalLocker.
func minimal(w *fixture, f *faulty) {
	stallable(w, f)
	limits := driver.Limits{
		MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second,
		MaxName: 200, MaxOwner: 100, MaxData: 1000, Poll: 5 * time.Second,
	}
	f.limits = func() driver.Limits { return limits }
	f.capabilities = func(driver.Capabilities) driver.Capabilities { return driver.Capabilities{} }
	onlyBasics := func(r driver.Record) driver.Record {
		return driver.Record{Name: r.Name, State: r.State, Owner: r.Owner, Token: r.Token, Data: r.Data}
	}
	f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
		if err := req.Validate(limits); err != nil {
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
		return f.Locker.Renew(ctx, l)
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
