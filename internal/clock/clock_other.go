//go:build !linux && !windows

package clock

import "time"

// Elapsed reads Go's monotonic clock, which stands still while the system sleeps. A machine that
// slept may take its leases for held for as long as it slept. Fencing tokens protect there.
//
// Promise 8: setting the wall clock does not change it.
func Elapsed() time.Duration { return Monotonic() }
