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

// stopWindow is how long a program that handles SIGTSTP may take before it stops itself by another signal, as holdfast does.
const stopWindow = time.Second

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
	if (by == syscall.SIGSTOP || by == syscall.SIGTTIN) && time.Since(c.askedStop) < stopWindow {
		by = syscall.SIGTSTP // such as by a holdfast that the command is
	}
	c.askedStop = time.Time{}
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if !wantsTerminal && by != syscall.SIGTSTP {
		return
	}
	own := unix.Getpgrp()
	hadTerminal := c.tty.inForeground(c.pid)
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
		suspend(hadTerminal || wantsTerminal)
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
// If it is for the command's terminal, all of holdfast's group is stopped, as the system itself does: a script that runs holdfast is
// part of the job, and another holdfast, whose command the script is, learns that the terminal is for this one. After Ctrl-Z in
// holdfast's own group the others have got that signal.
//
// The system does not stop a group by SIGTTIN that no shell could continue. (Go cannot restore the default action of SIGTSTP.)
func suspend(forTerminal bool) {
	continued, stop := tty.NotifyContinued()
	defer stop()
	processes := os.Getpid()
	if forTerminal {
		processes = 0 // the group
	}
	if syscall.Kill(processes, syscall.SIGTTIN) == nil {
		select {
		case <-continued:
		case <-time.After(suspendTimeout): // it was not stopped, or for longer than that
		}
	}
}
