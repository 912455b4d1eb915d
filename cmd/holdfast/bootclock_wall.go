//go:build unix && !linux && !darwin && !freebsd && !openbsd && !dragonfly && !solaris

package main

import "time"

// bootClock is the wall clock, the only one here that processes are known to share.
// Setting it forward can have the guardian kill the command too early; setting it
// back, too late.
func bootClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
