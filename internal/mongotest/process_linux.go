package mongotest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// childAttr has the kernel kill mongod when the test process dies, however it
// dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether every thread of a process is stopped: the signal is only
// the request.
func stopped(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		// The state follows the name, which is in brackets and may hold anything.
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || i+2 >= len(stat) || stat[i+2] != 'T' {
			return false
		}
	}
	return true
}
