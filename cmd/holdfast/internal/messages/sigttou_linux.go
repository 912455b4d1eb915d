package messages

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// blockSIGTTOU blocks SIGTTOU for the calling goroutine, which can then write to a terminal
// from the background. After "stty tostop" the signal would stop the whole process, and a
// stopped holdfast cannot supervise its command. The returned function undoes it.
func blockSIGTTOU() (undo func()) {
	runtime.LockOSThread()
	var add, before unix.Sigset_t
	add.Val[0] = 1 << (syscall.SIGTTOU - 1) // below 32, so always in the first word
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &add, &before)
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
}
