package lockertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

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
