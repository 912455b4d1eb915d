// Package clock reads elapsed time.
package clock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/timing"
)

// processStart is the zero of the monotonic clock; only differences matter.
var processStart = time.Now()

// Monotonic reads Go's monotonic clock.
func Monotonic() time.Duration { return time.Since(processStart) }

// Jitter is timing.Jitter.
func Jitter(d time.Duration, fraction float64) time.Duration { return timing.Jitter(d, fraction) }

// Backoff is timing.Backoff.
func Backoff(n int, first, most time.Duration) time.Duration { return timing.Backoff(n, first, most) }
