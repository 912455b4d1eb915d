// Package clock reads elapsed time.
package clock

import "time"

// processStart is the zero of the monotonic clock; only differences matter.
var processStart = time.Now()

// Monotonic reads Go's monotonic clock.
func Monotonic() time.Duration { return time.Since(processStart) }
