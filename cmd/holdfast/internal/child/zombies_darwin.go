package child

import (
	"slices"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of sys/proc.h.
const zombie = 5

// onlyZombies reports whether all members of a process group have ended and are not reaped yet. If their parent never does
// that, they stay forever.
func onlyZombies(group int) bool {
	members, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", group)
	return err == nil && len(members) > 0 && !slices.ContainsFunc(members, func(m unix.KinfoProc) bool { return m.Proc.P_stat != zombie })
}
