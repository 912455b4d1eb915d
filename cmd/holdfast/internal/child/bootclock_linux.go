package child

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since boot. All processes of the system share this clock,
// nobody can set it, and it counts the time that the system is suspended.
func bootClock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has this clock
	}
	return time.Duration(now.Nano())
}
