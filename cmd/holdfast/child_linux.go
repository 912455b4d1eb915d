package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttributes: a group of its own, and death if holdfast is killed, since then
// nobody renews the lock any more. That reaches the command itself, not what it
// started, and no set-user-ID program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupLives reports whether a process group has a member that is not a zombie: one
// whose parent never asks for it would stay for ever.
func groupLives(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	zombies := false
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		state, member := processState(p.Name(), group)
		if member && state != 'Z' && state != 'X' {
			return true
		}
		zombies = zombies || member
	}
	return !zombies // one that /proc does not show may be alive
}

// processState reads /proc/PID/stat, described in proc_pid_stat(5): after the name
// in parentheses come the state, the parent and the process group.
func processState(pid string, group int) (state byte, member bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 || string(fields[2]) != strconv.Itoa(group) {
		return 0, false
	}
	return fields[0][0], true
}
