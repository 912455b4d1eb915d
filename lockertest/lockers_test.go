package lockertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// TestMinimalLocker runs the suite on a Locker that can do and report little, like a lease on a
// blob: TTLs of whole seconds from 15 to 60; no time left, TTL or revision in its records; no
// capabilities.
func TestMinimalLocker(t *testing.T) {
	s := newSuite(t, newFixture().config(minimal()))
	if s.cfg.TTL != 15*time.Second {
		t.Errorf("the suite chose a TTL of %v, want the shortest, 15s", s.cfg.TTL)
	}
	allPass(t, s)
}

// minimal makes the Locker of TestMinimalLocker.
func minimal() fault {
	limits := driver.Limits{
		MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second,
		MaxName: 200, MaxOwner: 100, MaxData: 1000, Poll: 5 * time.Second,
	}
	return fault{
		info: func(_ *fixture, i *driver.Info) {
			*i = driver.Info{Backend: "memory", Limits: limits, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten, FixedTTL: true}
		},
		has: func(c *driver.Capabilities) { *c = driver.Capabilities{} },
		do: chain(func(c *call) driver.Answer {
			var err error
			switch c.Method {
			case driver.MethodTryAcquire:
				err = c.Request.Validate(driver.Info{Limits: limits})
				c.Request.Replace = driver.Revision{}
			case driver.MethodRenew:
				err = errors.Join(driver.ValidateName(c.lock(), limits), driver.ValidateTTL(c.Lease.TTL, limits))
			case driver.MethodRelease, driver.MethodInspect:
				err = driver.ValidateName(c.lock(), limits)
			}
			if err != nil {
				return c.fail(err)
			}
			return c.send()
		}, inspects(func(_ *call, r *driver.Record) {
			*r = driver.Record{Name: r.Name, State: r.State, Owner: r.Owner, Token: r.Token, Data: r.Data}
		})),
	}
}

// listed is a Checker of a type that cannot be compared.
type listed struct {
	driver.Checker
	_ []string
}

func TestCapabilityThatCannotBeCompared(t *testing.T) {
	s := newSuite(t, newFixture().config(fault{has: func(c *driver.Capabilities) { c.Checker = listed{Checker: c.Checker} }}))
	if failures := s.failures(t, "info/sane"); len(failures) > 0 {
		t.Errorf("info/sane: %q", failures)
	}
}

// TestForgetfulLocker runs the suite on a Locker whose locks leave nothing when they are free, as a key that
// a store removes at its expiry. It declares that, so it passes.
func TestForgetfulLocker(t *testing.T) {
	var mu sync.Mutex // the record goes in the same step
	forgets := func(c *call) driver.Answer {
		if c.Concerned().Name == "" {
			return c.send()
		}
		mu.Lock()
		defer mu.Unlock()
		forget := func() {
			if isFree(c) {
				c.store.Remove(c.lock())
			}
		}
		if c.Method != driver.MethodRenew {
			forget()
		}
		a := c.send()
		if c.Method == driver.MethodRelease || c.Method == driver.MethodBreakNow {
			forget()
		}
		a.Record.History = nil
		return a
	}
	allPass(t, newSuite(t, newFixture().config(fault{
		do:   chain(reachable, forgets), // a call that hangs must not keep the mutex
		info: func(_ *fixture, i *driver.Info) { i.Free, i.History, i.Turn = driver.FreeRecord{}, 0, 0 },
		has:  func(c *driver.Capabilities) { c.Waker, c.Queue = nil, nil }, // the queue goes with the record
	})))
}

// TestNothingIsGranted runs the suite on a Locker that fails each request, as the first version of a driver may
// do. The author sees failures, not a suite that never ends.
func TestNothingIsGranted(t *testing.T) {
	cfg := newFixture().config(fault{do: on(driver.MethodTryAcquire, func(c *call) driver.Answer {
		a := c.next(c.ctx, driver.Call{Method: driver.MethodInspect, Name: c.lock()})
		if a.Err != nil { // it is closed, or the name is not valid
			return driver.Answer{Err: a.Err}
		}
		return c.fail(errors.New("syntax error"))
	})})
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

// A store whose clock advances in long steps is sound: its leases last longer, and it has a new token after a step.
func TestClockInSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				now := func() time.Time { return time.Now().Truncate(step) }
				w.store = memory.NewStore(memory.WithClock(now))
				cfg := w.config(fault{do: chain(sends(driver.MethodRenew, func(c *call) { c.Lease.TTL += step }),
					chain(asks(func(c *call) { c.Request.TTL += step }), grants(func(c *call, l *driver.Lease) {
						if c.noted("removed "+l.Name) != nil { // the token is the clock's again
							l.Token = uint64(now().UnixMilli())
						}
					})))})
				cfg.Advance, cfg.TTL, cfg.ClockStep = nil, time.Second, step
				s := newSuite(t, cfg)
				for range 4 { // at each part of a step
					for _, name := range []string{"token/removed", "renew/removed", "inspect/revision after a removal", "history/expired"} {
						if failures := s.failures(t, name); len(failures) > 0 {
							t.Errorf("%s: %q", name, failures)
						}
					}
					time.Sleep(step / 4)
				}
			})
		})
	}
}

// Long steps make no lease end earlier.
func TestEarlyEndWithAClockInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newFixture().config(fault{do: everyTenure(func(_ *call, t *driver.Tenure) { t.Until = t.From })})
		cfg.ClockStep = 2 * time.Second
		if failures := newSuite(t, cfg).failures(t, "history/expired"); len(failures) == 0 {
			t.Error("a lease that ended when it began was not seen")
		}
	})
}

// A fail-over may take long. A lease that has ended meanwhile is no grant that was forgotten.
func TestSlowFailOver(t *testing.T) {
	for longest, over := range map[time.Duration]time.Duration{0: 5 * time.Minute, time.Minute: 61 * time.Second} {
		cfg := newFixture().config(fault{info: func(_ *fixture, i *driver.Info) { i.Limits.MaxTTL = longest }})
		var s *suite
		cfg.FailOver = func(ctx context.Context) error { s.pass(ctx, over); return nil }
		s = newSuite(t, cfg)
		if failures := s.failures(t, "failover/grants survive"); len(failures) > 0 {
			t.Errorf("a fail-over of %v, and leases of %v at most: %q", over, longest, failures)
		}
	}
}
