//go:build unix && !linux

package workload

import "syscall"

// childAttr has no effect on this system: a process survives if its parent is killed.
func childAttr() *syscall.SysProcAttr { return nil }
