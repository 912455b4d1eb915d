package azuritetest

import "syscall"

// childAttr has the kernel kill Azurite when the test process dies, however it
// dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
