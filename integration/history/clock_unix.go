//go:build unix

package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now reads the clock of all histories, CLOCK_MONOTONIC: one and the same for all
// processes of a machine, and not moved by setting the wall clock.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error()) // every Unix has it
	}
	return time.Duration(ts.Nano())
}
