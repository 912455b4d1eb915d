//go:build unix

package tty

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	raw, err := f.SyscallConn() // Fd would make a non-blocking file a blocking one
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		is = err == nil
	})
	return is && err == nil
}

// InBackground reports whether a file is the terminal of this process's session, and another process group has it. The system stops
// a process that reads it then.
func InBackground(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP)
		is = err == nil && group != syscall.Getpgrp()
	})
	return is && err == nil
}

// LocaleIsUTF8 is false where the locale says whether the terminal shows UTF-8.
const LocaleIsUTF8 = false

// SuspendGroup stops the process group, as Ctrl-Z does where the terminal sends signals, and returns
// when the shell has continued it. It reports false for a group that no shell could continue: the
// system does not stop it.
func SuspendGroup() (continued bool) {
	signals, stop := NotifyContinued()
	defer stop()
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return false
	}
	select {
	case <-signals:
		return true
	case <-time.After(suspendTimeout):
		return false
	}
}

// suspendTimeout is how long a busy system may take to stop the group.
const suspendTimeout = time.Second

// NotifyContinued returns a channel that gets a value when the shell has continued the process.
func NotifyContinued() (continued <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}
