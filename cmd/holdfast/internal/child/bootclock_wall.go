//go:build unix && !linux && !darwin && !freebsd && !openbsd && !dragonfly && !solaris

package child

import "time"

// bootClock returns the wall clock's time: on these systems it is the only clock that
// processes are known to share. If the clock is set forward, the guardian may kill the
// command too early; if it is set back, too late.
func bootClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
