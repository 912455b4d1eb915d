//go:build darwin || freebsd || openbsd || dragonfly || solaris

package child

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns the monotonic time. All processes of the system share this clock, and
// nobody can set it. On macOS it counts the time that the system sleeps; the other systems
// differ.
func bootClock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // these systems always have this clock
	return time.Duration(now.Nano())
}
