package serverprocess

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

var stopSignal, pauseSignal, resumeSignal os.Signal = syscall.SIGTERM, syscall.SIGSTOP, syscall.SIGCONT

// childAttributes make the kernel kill a server when the test process dies, however it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isPaused reports whether every thread of a process has stopped. After the signal that takes
// a moment.
func isPaused(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		// The state follows the name, which is in brackets and can contain anything.
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || i+2 >= len(stat) || stat[i+2] != 'T' {
			return false
		}
	}
	return true
}
