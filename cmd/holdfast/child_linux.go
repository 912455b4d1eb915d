package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttributes: a group of its own, and death if holdfast is killed, even if the
// guardian is killed with it. That reaches the command itself, not what it started,
// and no set-user-ID program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupLives reports whether a process group has a member, besides the guardian, that
// is not a zombie: one whose parent never asks for it would stay forever.
func groupLives(group, guardian int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	seen := false
	for _, p := range processes {
		now := processState(p.Name())
		member := now.group == group
		if member && !now.zombie && now.pid != guardian {
			return true
		}
		seen = seen || member
	}
	return !seen // a member that /proc does not show may be alive
}

// reapOrphans reaps what ended after its parent had: such processes become children
// of process 1, which in a container holdfast may be. It leaves alone the command and the
// guardian, which are reaped elsewhere, and holdfast's own group: a tool that a library
// has started, such as one for credentials, is waited for there.
func (c *child) reapOrphans() {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	self, own := os.Getpid(), syscall.Getpgrp()
	for _, p := range processes {
		now := processState(p.Name())
		if now.zombie && now.parent == self && now.group != own && now.pid != c.pid && now.pid != c.guardian.pid() {
			_, _ = syscall.Wait4(now.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

type process struct {
	pid, parent, group int
	zombie             bool // has ended and is not reaped yet
}

// processState reads /proc/PID/stat, described in proc_pid_stat(5): after the name
// in parentheses come the state, the parent and the process group. What is no
// process, or is gone, has group -1.
func processState(entry string) process {
	none := process{group: -1}
	pid, err := strconv.Atoi(entry)
	if err != nil {
		return none
	}
	stat, err := os.ReadFile("/proc/" + entry + "/stat")
	if err != nil {
		return none
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return none
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	if err1 != nil || err2 != nil {
		return none
	}
	state := fields[0][0]
	return process{pid, parent, group, state == 'Z' || state == 'X'}
}
