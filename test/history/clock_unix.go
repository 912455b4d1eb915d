//go:build unix

package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now reads the clock of all histories, CLOCK_MONOTONIC. All processes of a machine share it, and
// setting the wall clock does not move it.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error()) // every Unix has it
	}
	return time.Duration(ts.Nano())
}
