//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processCPU returns the processor time of this process so far, user and system time together.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
