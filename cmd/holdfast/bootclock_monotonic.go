//go:build darwin || freebsd || openbsd || dragonfly || solaris

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is a clock that all processes of the system share and that nobody sets. On
// macOS it counts the time that the system sleeps; elsewhere that varies.
func bootClock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it is always there
	return time.Duration(now.Nano())
}
