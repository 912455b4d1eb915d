package child

import (
	"os"
	"syscall"
)

// ownPath is the path of this very program, even if its file was replaced meanwhile.
func ownPath() (string, error) { return "/proc/self/exe", nil }

// joinGroup makes this process a member of a group. It fails if the group is gone. Without /proc nothing
// would tell it from the group's other members, so it stays outside.
func joinGroup(group int) bool { return !procIsOwn() || syscall.Setpgid(0, group) == nil }

// setProcessName sets the name that ps and pkill see.
func setProcessName(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
