package mongotest

import "syscall"

// childAttr has the kernel kill mongod when the test process dies, however it
// dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
