//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// endingSignals ask holdfast to end. While it waits they do; while the command
// runs they are passed on. otherSignals are passed on while the command runs, and do
// nothing while it does not.
var (
	endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	otherSignals  = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
	// jobSignals come from the terminal to its foreground process group, which the
	// command's is not to begin with (see terminal_unix.go).
	jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGWINCH}
)

const termSignal = syscall.SIGTERM

// child is a running command and its process group, whose leader it is.
type child struct {
	pid int
	// changed gets a signal when poll may have news.
	changed chan os.Signal
	// stops gets the signal that stopped the command each time one does.
	stops    chan os.Signal
	guardian *guardian // nil if none could be started
	tty      *terminal
	closed   chan struct{}
}

// startChild runs path in a process group of its own, so that a signal reaches
// what the command started, too. A guardian is started before it. Without one the
// command runs nevertheless: unguarded is then why.
func startChild(path string, args, env []string) (c *child, unguarded, err error) {
	c = &child{changed: make(chan os.Signal, 1), stops: make(chan os.Signal, 8), closed: make(chan struct{})}
	signal.Notify(c.stops, jobSignals...) // before the start: none may be missed
	signal.Notify(c.changed, syscall.SIGCHLD)
	c.guardian, unguarded = startGuardian()
	started := make(chan error)
	go func() {
		// The kernel ties "kill it when its parent dies" to the thread that started
		// it, so this goroutine keeps that thread for as long as the command runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		process, err := os.StartProcess(path, args, &os.ProcAttr{
			Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: childAttributes(),
		})
		if err != nil {
			started <- err
			return
		}
		c.pid = process.Pid
		_ = process.Release() // poll does the waiting: it sees stops, too
		started <- nil
		<-c.closed
	}()
	if err := <-started; err != nil {
		c.close()
		return nil, nil, err
	}
	c.tty = openTerminal()
	return c, unguarded, nil
}

// poll looks for what became of the command: it reports its exit code once it has
// ended, and sends to stops if it was stopped. It never waits. The goroutine that
// calls it is the one that sends signals: a command that it has not reaped yet keeps its
// number, so that no signal can reach a stranger.
func (c *child) poll() (code int, ended bool) {
	if os.Getpid() == 1 {
		c.reapOrphans()
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(c.pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return codeUnavailable, true // somebody else reaped it: its code is not to be had
		case pid == 0:
			return 0, false
		case status.Stopped():
			select {
			case c.stops <- stopped(status.StopSignal()):
			default: // one is being dealt with
			}
		case status.Signaled():
			return codeSignal + int(status.Signal()), true
		case status.Exited():
			return status.ExitStatus(), true
		}
	}
}

// guard has the guardian kill the group when left is over, unless this is called again
// before.
func (c *child) guard(left func() time.Duration) error {
	if c.guardian == nil {
		return nil
	}
	now := bootClock() // before left is asked: a pause in between must not make it later
	return c.guardian.order(c.pid, now+left())
}

// heard gets the signals that reached the whole group without holdfast, and also
// those that holdfast sent there. It is nil if nobody listens.
func (c *child) heard() <-chan os.Signal {
	if c.guardian == nil {
		return nil
	}
	return c.guardian.heard
}

// guardianKilled reports whether the guardian has killed the group. It is asked when
// nothing remains of that.
func (c *child) guardianKilled() bool { return c.guardian != nil && c.guardian.killed }

// stopped is the news that a signal has stopped the command.
type stopped syscall.Signal

func (s stopped) Signal()        {}
func (s stopped) String() string { return "stopped by " + syscall.Signal(s).String() }

// signal sends a signal to the whole group. That it is gone is no error.
func (c *child) signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return nil
	}
	err := syscall.Kill(-c.pid, number)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// end asks the group to end by a signal; one that is stopped is woken, or it would
// never know.
func (c *child) end(sig os.Signal) error {
	return errors.Join(c.signal(sig), c.wake())
}

func (c *child) wake() error { return c.signal(syscall.SIGCONT) }

func (c *child) kill() error { return c.signal(syscall.SIGKILL) }

// remains reports whether the group has a living member besides the guardian. It is
// asked after the command itself was reaped. The group's number stays taken while the
// group has members, the guardian among them, so nobody else is meant by it. The
// guardian is dismissed when nobody seems to be left: without it the system itself says
// whether that is so.
func (c *child) remains() bool {
	if groupLives(c.pid, c.guardian.pid()) {
		return true
	}
	c.guardian.dismiss()
	return groupLives(c.pid, 0)
}

// close takes the terminal back and dismisses the guardian. The group must be gone.
func (c *child) close() {
	signal.Stop(c.stops)
	signal.Stop(c.changed)
	signal.Reset(jobSignals...)
	c.tty.take(c.pid)
	c.tty.close()
	c.guardian.dismiss()
	close(c.closed)
}
