//go:build unix && !linux

package workload

import "syscall"

// childAttr can do nothing here: a process outlives the one that started it if that
// is killed.
func childAttr() *syscall.SysProcAttr { return nil }
