package clock_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

func TestJitterStaysWithinItsFraction(t *testing.T) {
	lower, upper := false, false
	for range 1000 {
		d := clock.Jitter(time.Second, 0.2)
		if d < 800*time.Millisecond || d > 1200*time.Millisecond {
			t.Fatalf("a second became %v", d)
		}
		lower, upper = lower || d < time.Second, upper || d > time.Second
	}
	if !lower || !upper {
		t.Error("all changes go in one direction")
	}
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 3: 5 * time.Second, 1 << 30: 5 * time.Second} {
		if d := clock.Backoff(n, time.Second, 5*time.Second); d < want*3/4 || d > want*5/4 {
			t.Errorf("retry %d after %v, want about %v", n, d, want)
		}
	}
}

func TestMonotonicIncreases(t *testing.T) {
	first := clock.Monotonic()
	if second := clock.Monotonic(); second < first {
		t.Errorf("%v after %v", second, first)
	}
}
