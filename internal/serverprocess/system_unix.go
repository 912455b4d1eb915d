//go:build unix && !linux

package serverprocess

import (
	"os"
	"syscall"
)

var stopSignal, pauseSignal, resumeSignal os.Signal = syscall.SIGTERM, syscall.SIGSTOP, syscall.SIGCONT

// childAttributes is nil: a server outlives a test process that is killed or panics.
func childAttributes() *syscall.SysProcAttr { return nil }

// isPaused does not check: a process counts as paused once it was sent the signal.
func isPaused(int) bool { return true }
