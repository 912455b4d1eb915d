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
				cfg := w.config(func(w *fixture, f *faulty) {
					f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						lasting := req
						lasting.TTL += step
						lease, err := f.Locker.TryAcquire(ctx, lasting)
						if err == nil {
							lease.TTL = req.TTL
						}
						if err == nil && w.noted("removed "+req.Name) != nil { // the token is the clock's again
							lease.Token = uint64(now().UnixMilli())
						}
						return lease, err
					}
					f.renew = func(ctx context.Context, l driver.Lease) error {
						l.TTL += step
						return errOf(f.Locker.Renew(ctx, l))
					}
				})
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
		cfg := newFixture().config(everyTenure(func(_ *fixture, t *driver.Tenure) { t.Until = t.From }))
		cfg.ClockStep = 2 * time.Second
		if failures := newSuite(t, cfg).failures(t, "history/expired"); len(failures) == 0 {
			t.Error("a lease that ended when it began was not seen")
		}
	})
}
