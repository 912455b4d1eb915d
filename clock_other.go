//go:build !linux && !windows

package holdfast

import "time"

// elapsed falls back to Go's monotonic clock, which stands still while the system
// sleeps: a machine that sleeps longer than the grace may believe for up to
// that long that it still holds its leases. Fencing tokens protect there.
func elapsed() time.Duration { return monotonic() }
