//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
)

// stopWindow is how long a program that handles SIGTSTP may take before it stops itself by SIGSTOP, as holdfast does.
const stopWindow = 5 * time.Second

// suspendTimeout is how long a busy system may take to stop holdfast. Meanwhile the guardian gets no orders.
const suspendTimeout = 200 * time.Millisecond

// terminal is the controlling terminal, or nil if there is none.
//
// The command has a process group of its own, which starts in the background. Holdfast
// receives the keyboard's signals (Ctrl-C, Ctrl-Z) and forwards them. When the command
// stops because it tries to read the terminal, holdfast puts it into the foreground, where
// it stays. That way a pipeline such as "holdfast run … | less" keeps its terminal, and an
// editor or a password prompt works.
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

// inForeground reports whether a process group is in the foreground.
func (t *terminal) inForeground(group int) bool {
	if t == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// setForeground puts a group into the foreground. A process in the background may do so
// only while it ignores SIGTTOU.
func (t *terminal) setForeground(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) // the group may have ended just now
}

// takeForeground puts holdfast's own group into the foreground if the given group was there.
func (t *terminal) takeForeground(from int) {
	if t.inForeground(from) {
		t.setForeground(unix.Getpgrp())
	}
}

// jobControl handles a value of c.stopEvents. It calls beforeSuspend before holdfast stops
// itself, and continues the command only if mayContinue returns true.
func (c *Child) jobControl(sig os.Signal, beforeSuspend func(), mayContinue func() bool) {
	event, ok := sig.(stopEvent)
	if !ok {
		if sig != syscall.SIGTSTP || !withoutShell() {
			if sig == syscall.SIGTSTP {
				c.askedStop = time.Now()
			}
			_ = c.signal(sig) // the terminal's signal to holdfast is meant for the command too
		}
		return
	}
	if c.tty == nil {
		return // another process stopped only the command, and will continue it
	}
	by := syscall.Signal(event)
	hadTerminal := c.tty.inForeground(c.pid)
	if by == syscall.SIGSTOP && (hadTerminal || time.Since(c.askedStop) < stopWindow) {
		by = syscall.SIGTSTP // such as by a holdfast that the command is
	}
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if !wantsTerminal && by != syscall.SIGTSTP {
		return
	}
	own := unix.Getpgrp()
	switch {
	case wantsTerminal && c.tty.inForeground(own): // it gets the terminal below
	case withoutShell():
		if !wantsTerminal || hadTerminal { // another holdfast has stopped itself in the foreground
			_ = c.signal(syscall.SIGCONT)
		}
		return
	default:
		c.tty.takeForeground(c.pid)
		beforeSuspend()
		c.suspend(wantsTerminal, hadTerminal)
	}
	if !mayContinue() {
		return
	}
	if (hadTerminal || wantsTerminal) && c.tty.inForeground(own) {
		c.tty.setForeground(c.pid)
	}
	_ = c.signal(syscall.SIGCONT)
}

// withoutShell reports whether holdfast has no shell that could continue it: it is the
// program that the terminal was opened for, as with "ssh -t" or "docker run -t". There
// Ctrl-Z does nothing, as for any other program.
func withoutShell() bool {
	parent := os.Getppid()
	if parent == 0 { // holdfast is process 1 of a container
		return true
	}
	own, err1 := unix.Getsid(0)
	parents, err2 := unix.Getsid(parent)
	return err1 != nil || err2 != nil || own != parents
}

// suspend stops holdfast, as the shell expects of a job whose command has stopped, and
// returns when the shell has continued it. The lock is not renewed meanwhile.
//
// The others of holdfast's group are part of the job, such as a script that runs holdfast. If the command wants the terminal, they are
// stopped as by the system. After Ctrl-Z while the command had it, only the command's group has got the keyboard's signal.
func (c *Child) suspend(wantsTerminal, hadTerminal bool) {
	continued, stop := tty.NotifyContinued()
	defer stop()
	processes, sig := os.Getpid(), syscall.SIGTTIN // which the system does not send to a group that no shell could continue
	switch {
	case wantsTerminal:
		processes = 0 // the group
	case parentIsShell():
		sig = syscall.SIGSTOP // after SIGTTIN it would only get the terminal (Go cannot restore the default action of SIGTSTP)
	}
	if hadTerminal && !wantsTerminal { // as late as possible: who sees the script stopped may continue the group
		signal.Ignore(syscall.SIGTSTP)
		_ = syscall.Kill(0, syscall.SIGTSTP)
		signal.Notify(c.stopEvents, syscall.SIGTSTP)
	}
	if syscall.Kill(processes, sig) == nil {
		select {
		case <-continued:
		case <-time.After(suspendTimeout): // it was not stopped, or for longer than that
		}
	}
}

// parentIsShell reports whether holdfast's parent has put it into a group of its own, as a shell, sudo and another holdfast do.
func parentIsShell() bool {
	group, err := unix.Getpgid(os.Getppid())
	return err == nil && group != unix.Getpgrp() && !withoutShell()
}
