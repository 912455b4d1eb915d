package timing_test

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/timing"
)

var byDefault = timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second}

func TestLossComesBeforeTheExpiry(t *testing.T) {
	const start = time.Hour
	if at, want := byDefault.LossAt(start), start+25*time.Second; at != want {
		t.Errorf("lost at %v, want %v", at, want)
	}
	if at, want := byDefault.ExpiresAt(start), start+30*time.Second-30*time.Millisecond; at != want {
		t.Errorf("expires at %v, want %v", at, want)
	}
}

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		ttl   time.Duration
		part  int
		limit time.Duration
		want  time.Duration
	}{
		{30 * time.Second, 3, time.Minute, 10 * time.Second},
		{time.Hour, 3, time.Minute, time.Minute},
		{time.Microsecond, 300, time.Second, time.Microsecond}, // never zero
	} {
		if got := (timing.Timing{TTL: tc.ttl}).Share(tc.part, tc.limit); got != tc.want {
			t.Errorf("1/%d of %v, at most %v: %v, want %v", tc.part, tc.ttl, tc.limit, got, tc.want)
		}
	}
}

// The backoff doubles from 1/100 of the TTL up to 1/12, and is jittered by a quarter.
func TestBackoffGrows(t *testing.T) {
	for n, want := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 2400 * time.Millisecond,
		2500 * time.Millisecond, 2500 * time.Millisecond} {
		for range 100 {
			if d := byDefault.Backoff(n); d < want*3/4 || d > want*5/4 {
				t.Fatalf("after failure %d: %v, want about %v", n, d, want)
			}
		}
	}
}

func TestPatience(t *testing.T) {
	if d := timing.Patience(4 * time.Second); d != 5*time.Second {
		t.Errorf("patience with a call of 4 s: %v", d)
	}
}

func TestJitterStaysWithinItsFraction(t *testing.T) {
	lower, upper := false, false
	for range 1000 {
		d := timing.Jitter(time.Second, 0.2)
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
	for n, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 3: 5 * time.Second,
		1 << 30: 5 * time.Second} {
		if d := timing.Backoff(n, time.Second, 5*time.Second); d < want*3/4 || d > want*5/4 {
			t.Errorf("retry %d after %v, want about %v", n, d, want)
		}
	}
}

// A backoff without an end is one.
func TestBackoffDoesNotOverflow(t *testing.T) {
	for n := range 100 {
		if d := timing.Backoff(n, math.MaxInt64/2, math.MaxInt64); d < time.Hour {
			t.Fatalf("%v after %d failures", d, n)
		}
	}
}
