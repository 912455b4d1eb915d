package bench

import (
	"syscall"
	"time"
)

// processCPU returns the processor time of this process so far, user and system time together.
func processCPU() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &ended, &kernel, &user); err != nil {
		return 0
	}
	return duration(kernel) + duration(user)
}

// duration converts a Filetime that is a duration, in units of 100 ns.
func duration(f syscall.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}
