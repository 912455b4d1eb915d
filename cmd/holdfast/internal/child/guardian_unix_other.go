//go:build unix && !linux

package child

import "os"

func ownPath() (string, error) { return os.Executable() }

// joinGroup does nothing. On these systems only a signal shows whether a group has members,
// so a guardian in the group would always count as one.
func joinGroup(int) bool { return true }

func setProcessName(string) {}
