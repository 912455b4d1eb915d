//go:build !linux

package mongotest

import "syscall"

// childAttr can do nothing here: a mongod outlives a test process that is
// killed or panics.
func childAttr() *syscall.SysProcAttr { return nil }

// stopped cannot be told here: the signal is taken for done.
func stopped(int) bool { return true }
