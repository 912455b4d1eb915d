package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// writeInBackground lets the calling goroutine write to a terminal from the background,
// also after "stty tostop", which otherwise stops a process that does: a holdfast that is
// stopped cannot look after its command. It returns a function that ends this.
func writeInBackground() (end func()) {
	runtime.LockOSThread()
	var add, before unix.Sigset_t
	add.Val[0] = 1 << (syscall.SIGTTOU - 1) // below 32, so always in the first word
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &add, &before)
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
}
