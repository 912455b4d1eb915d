// Package clock reads elapsed time and computes delays.
package clock

import (
	"math/rand/v2"
	"time"
)

// processStart is the zero of the monotonic clock; only differences matter.
var processStart = time.Now()

// Monotonic reads Go's monotonic clock.
func Monotonic() time.Duration { return time.Since(processStart) }

// Jitter returns d changed at random by up to the given fraction either way, so that processes
// that failed together do not retry together.
func Jitter(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*fraction*float64(d))
}

// Backoff returns the jittered delay before retry number n, counted from 0. The delay doubles
// from first up to most.
func Backoff(n int, first, most time.Duration) time.Duration {
	d := first
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return Jitter(min(d, most), 0.25)
}
