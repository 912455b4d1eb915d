package workload

import "syscall"

// childAttr makes the kernel kill the process when its parent dies.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
