package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2). Unlike CLOCK_MONOTONIC, which Go's timers
// use, it also counts the time that the system is suspended.
const clockBoottime = 7

// Elapsed reads the boot-time clock.
//
// Promise 8: setting the wall clock does not change it, and it counts suspend.
func Elapsed() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 { // a kernel before 2.6.39, or a sandbox that forbids the call
		return Monotonic()
	}
	return time.Duration(ts.Nano())
}
