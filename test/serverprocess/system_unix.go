//go:build unix && !linux

package serverprocess

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

var stopSignal, pauseSignal, resumeSignal os.Signal = syscall.SIGTERM, syscall.SIGSTOP, syscall.SIGCONT

// childAttributes are empty: a server outlives a test process that is killed or panics.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// isPaused does not check: a process counts as paused once it was sent the signal.
func isPaused(int) bool { return true }

// hasEnded reports whether a process has ended.
func hasEnded(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// childrenOf returns the child processes of a process.
func childrenOf(pid int) []int {
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var out []int
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(fields[0]); err == nil {
			out = append(out, child)
		}
	}
	return out
}

// runUnprivileged makes a program run as another user if this process is root.
func runUnprivileged(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr.Credential, err = otherUser()
	return err
}
