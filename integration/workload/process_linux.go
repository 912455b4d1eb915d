package workload

import "syscall"

// childAttr has the kernel kill the process when the one that started it dies.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
