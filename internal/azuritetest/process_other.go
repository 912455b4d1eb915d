//go:build !linux

package azuritetest

import "syscall"

// childAttr can do nothing here: an Azurite outlives a test process that is
// killed or panics.
func childAttr() *syscall.SysProcAttr { return nil }
