//go:build unix && !linux

package main

import "syscall"

// childAttributes: a group of its own. These systems cannot have the command die
// with a holdfast that is killed; the guardian sees to that.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// groupLives reports whether a process group has a member that can be signalled; a
// group of zombies has none.
func groupLives(group, _ int) bool { return syscall.Kill(-group, 0) == nil }

// reapOrphans: without Linux' containers holdfast is never process 1.
func (c *child) reapOrphans() {}
