//go:build !linux && !windows

package clock

import "time"

// Elapsed falls back to Go's monotonic clock, which stands still while the system
// sleeps: a machine that sleeps longer than the grace may believe for up to
// that long that it still holds its leases. Fencing tokens protect there.
func Elapsed() time.Duration { return Monotonic() }
