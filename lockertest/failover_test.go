package lockertest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A fail-over may take long. A lease that has ended meanwhile is no grant that was forgotten.
func TestSlowFailOver(t *testing.T) {
	for longest, over := range map[time.Duration]time.Duration{0: 5 * time.Minute, time.Minute: 61 * time.Second} {
		cfg := newFixture().config(func(_ *fixture, f *faulty) {
			f.info = func(i driver.Info) driver.Info {
				i.Limits.MaxTTL = longest
				return i
			}
		})
		var s *suite
		cfg.FailOver = func(ctx context.Context) error { s.pass(ctx, over); return nil }
		s = newSuite(t, cfg)
		if failures := s.failures(t, "failover/grants survive"); len(failures) > 0 {
			t.Errorf("a fail-over of %v, and leases of %v at most: %q", over, longest, failures)
		}
	}
}
