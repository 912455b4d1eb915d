package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownPath is this very program, even if its file was replaced meanwhile.
func ownPath() (string, error) { return "/proc/self/exe", nil }

// bootClock is a clock that all processes of the system share, that nobody sets, and
// that counts the time that the system is suspended.
func bootClock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it is always there
	}
	return time.Duration(now.Nano())
}

// joinGroup makes this process a member of a group. It fails if that is gone.
func joinGroup(group int) bool { return syscall.Setpgid(0, group) == nil }

// nameOwnProcess sets the name that ps and pkill see.
func nameOwnProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
