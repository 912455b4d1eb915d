//go:build unix

package holdfastcontainers

import "syscall"

// detached keeps Ctrl-C from ending the keeper with the tests.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// lasting returns the program itself: a file can be removed while it runs.
func lasting(program, _ string) (string, error) { return program, nil }
