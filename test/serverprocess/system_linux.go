package serverprocess

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
		// A thread that has ended has no file.
		if fields, ok := statOf(path); ok && fields[0] != "T" {
			return false
		}
	}
	return true
}

// hasEnded reports whether a process has ended, also if its parent does not know that yet.
func hasEnded(pid int) bool {
	fields, ok := statOf(fmt.Sprintf("/proc/%d/stat", pid))
	return !ok || fields[0] == "Z" || fields[0] == "X"
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var out []int
	for _, path := range stats {
		if fields, ok := statOf(path); ok && fields[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// statOf reads a file stat of /proc. It returns the state and the fields that follow it; the first is
// the parent. They follow the name, which is in brackets and can contain anything.
func statOf(path string) (fields []string, ok bool) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	fields = strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields, len(fields) > 1
}

// capDACOverride is the number of the capability to use files of any user.
const capDACOverride = 1

// runUnprivileged makes a program run as another user if this process is root. The program can use the
// files of every user, since a checkout and the folders of the tests can be closed to other users. That
// takes effect in a program that the new user starts, so a shell starts the program.
func runUnprivileged(cmd *exec.Cmd) error {
	credential, err := otherUser()
	if credential == nil {
		return err
	}
	cmd.SysProcAttr.Credential, cmd.SysProcAttr.AmbientCaps = credential, []uintptr{capDACOverride}
	cmd.Args = append([]string{"sh", "-c", `cd "$0" && exec "$@"`, cmd.Dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Dir = "/bin/sh", "/"
	return nil
}
