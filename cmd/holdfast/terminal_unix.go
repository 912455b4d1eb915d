//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal; nil if there is none.
//
// The command has a process group of its own, which is in the background at first:
// holdfast gets what the keyboard sends (Ctrl-C, Ctrl-Z) and passes it on. When the
// command stops because it wants to read the terminal, it is put into the foreground
// for good. That way a pipeline such as "holdfast run … | less" keeps its terminal,
// and an editor or a password prompt works.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// hasForeground reports whether a process group is in the foreground.
func (t *terminal) hasForeground(group int) bool {
	if t == nil {
		return false
	}
	now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && now == group
}

// give puts a group into the foreground. From the background that is allowed only
// while SIGTTOU is ignored.
func (t *terminal) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) // it may have ended just now
}

// take puts holdfast's own group into the foreground if from was there.
func (t *terminal) take(from int) {
	if t.hasForeground(from) {
		t.give(unix.Getpgrp())
	}
}

// jobControl deals with what came from c.stops. stopping is told before holdfast
// stops itself; may is asked whether the command may go on.
func (c *child) jobControl(sig os.Signal, stopping func(), may func() bool) {
	news, ok := sig.(stopped)
	if !ok {
		if sig != syscall.SIGTSTP || !orphaned() {
			_ = c.signal(sig) // the terminal's signal to holdfast: the command's, too
		}
		return
	}
	if c.tty == nil {
		return // somebody stopped the command alone, and will continue it
	}
	by := syscall.Signal(news)
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if !wantsTerminal && by != syscall.SIGTSTP {
		return
	}
	own := unix.Getpgrp()
	had := c.tty.hasForeground(c.pid)
	switch {
	case wantsTerminal && c.tty.hasForeground(own): // it gets it below
	case orphaned():
		if !wantsTerminal {
			_ = c.signal(syscall.SIGCONT)
		}
		return
	default:
		c.tty.take(c.pid)
		stopping()
		suspend()
	}
	if !may() {
		return
	}
	if (had || wantsTerminal) && c.tty.hasForeground(own) {
		c.tty.give(c.pid)
	}
	_ = c.signal(syscall.SIGCONT)
}

// orphaned reports whether holdfast has no shell that could continue it: it is
// what the terminal was opened for, as with "ssh -t" or "docker run -t". There,
// as everywhere, Ctrl-Z does nothing.
func orphaned() bool {
	parent := os.Getppid()
	if parent == 0 { // process 1 of a container
		return true
	}
	own, err1 := unix.Getsid(0)
	parents, err2 := unix.Getsid(parent)
	return err1 != nil || err2 != nil || own != parents
}

// suspend stops holdfast, as the shell expects of a job whose command has stopped,
// and returns when the shell has continued it. Nothing renews the lock meanwhile.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-continued
	}
}
