// Package clock reads elapsed time, and varies and grows delays.
package clock

import (
	"math/rand/v2"
	"time"
)

// processStart is where the monotonic clock counts from; only differences matter.
var processStart = time.Now()

// Monotonic reads Go's monotonic clock.
func Monotonic() time.Duration { return time.Since(processStart) }

// Jitter returns d changed by up to the given fraction either way, so that
// processes that failed together do not come back together.
func Jitter(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*fraction*float64(d))
}

// Backoff returns the jittered delay before retry number n (from 0): it doubles
// from first up to most.
func Backoff(n int, first, most time.Duration) time.Duration {
	d := first
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return Jitter(min(d, most), 0.25)
}
