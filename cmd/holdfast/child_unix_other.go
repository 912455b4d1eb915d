//go:build unix && !linux

package main

import "syscall"

// childAttributes gives the command a process group of its own. These systems cannot kill
// a child when its parent is killed; the guardian does that.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// groupAlive reports whether a process group has a member that can be signalled. Zombies
// cannot.
func groupAlive(group, _ int) bool { return syscall.Kill(-group, 0) == nil }

// reapOrphans does nothing: holdfast is process 1 only in a Linux container.
func (c *child) reapOrphans() {}
