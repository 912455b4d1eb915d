//go:build unix && !linux

package child

import (
	"iter"
	"syscall"
)

// childAttributes gives the command a process group of its own. These systems cannot kill
// a child when its parent is killed; the guardian does that.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// groupAlive reports whether a process group has a member. Whether a zombie counts depends on the system.
func groupAlive(group, _ int) bool {
	return groupExists(syscall.Kill(-group, 0), func() bool { return onlyZombies(group) })
}

// othersDenied finds none: these systems do not show a group's members in /proc.
func othersDenied(int, int, func(int) bool) []int { return nil }

// isZombie does not know: a zombie counts as denied until it is reaped, right after its end.
func isZombie(int) bool { return false }

// groupMembers finds none, for the same reason.
func groupMembers(int) (members []process, known bool) { return nil, false }

// seesEnvironments is false, for the same reason.
func seesEnvironments() bool { return false }

// anyMarked cannot tell.
func anyMarked([]string) bool { return true }

// process is a member of a group.
type process struct {
	pid    int
	zombie bool
}

// inheritOrphans is false: holdfast is process 1 only in a Linux container.
func inheritOrphans() bool { return false }

// orphans finds none.
func orphans(map[int]bool) iter.Seq[int] { return func(func(int) bool) {} }

// inheritedChildren finds none.
func inheritedChildren() map[int]bool { return nil }
