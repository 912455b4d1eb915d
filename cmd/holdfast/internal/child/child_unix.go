//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
)

// jobSignals come from the terminal to its foreground process group, which is
// holdfast's at first, not the command's (see jobcontrol_unix.go).
var jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGWINCH}

// Child is a running command and its process group, whose leader it is.
type Child struct {
	pid int
	// stateChanged receives SIGCHLD: poll may find that the command has ended or stopped.
	stateChanged chan os.Signal
	// stopEvents receives a stopEvent each time a signal stops the command, and the
	// terminal's job signals to holdfast.
	stopEvents chan os.Signal
	guardian   *guardian // nil if none could be started
	tty        *terminal
	askedStop  time.Time // when the group was last sent SIGTSTP
	closed     chan struct{}
	reaped     atomic.Bool             // the command itself: its process ID may be a stranger's now
	probe      func(process int) error // whether a process can be signalled
}

// Start runs path in a process group of its own, so that a signal also reaches the
// processes that the command starts. The guardian is started first. If that fails, the
// command runs without one, and unguarded says why. Just before the command is started,
// mayStart is asked, and its error is returned.
func Start(path string, args, env []string, mayStart func() error) (c *Child, unguarded, err error) {
	c = &Child{stateChanged: make(chan os.Signal, 1), stopEvents: make(chan os.Signal, 8), closed: make(chan struct{}),
		probe: func(process int) error { return syscall.Kill(process, 0) }}
	signal.Notify(c.stopEvents, jobSignals...) // before the command starts, so that none is missed
	signal.Notify(c.stateChanged, syscall.SIGCHLD)
	c.guardian, unguarded = startGuardian()
	started := make(chan error)
	go func() {
		// The kernel kills the command when the thread that started it ends, so this
		// goroutine keeps the thread for as long as the command runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var process *os.Process
		err := mayStart() // Promise 2: this process may have been paused until now
		if err == nil {
			process, err = ownChildren.start(path, args, &os.ProcAttr{
				Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: childAttributes(),
			})
		}
		if err != nil {
			started <- err
			return
		}
		c.pid = process.Pid
		_ = process.Release() // poll waits for the process, because it also reports stops
		started <- nil
		<-c.closed
	}()
	if err := <-started; err != nil {
		c.Close()
		return nil, nil, err
	}
	c.tty = openTerminal()
	return c, unguarded, nil
}

// poll returns the command's exit code once it has ended, and sends to stopEvents if it
// was stopped. It never waits. Only the goroutine that sends signals may call it: a process
// ID is reused only after its process is reaped, so a signal cannot reach a stranger.
func (c *Child) poll() (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(c.pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			c.noteReaped()
			return exitcode.Unavailable, true // another reaped it, so its exit code is unknown
		case pid == 0:
			return 0, false
		case status.Stopped():
			select {
			case c.stopEvents <- stopEvent(status.StopSignal()):
			default: // an earlier one is still being handled
			}
		case status.Signaled():
			c.noteReaped()
			return exitcode.Signal + int(status.Signal()), true
		case status.Exited():
			c.noteReaped()
			return status.ExitStatus(), true
		}
	}
}

func (c *Child) noteReaped() {
	c.reaped.Store(true)
	ownChildren.reaped(c.pid)
}

// orderKill orders the guardian to kill the group after the time that left returns, before the
// lease expires after that and reserve. A later call replaces the order.
func (c *Child) orderKill(left func() time.Duration, reserve time.Duration) error {
	if c.guardian == nil {
		return nil
	}
	now := bootClock() // before left is called, so that a pause in between does not delay the kill
	at := now + left()
	return c.guardian.order(c.pid, at, at+reserve/2) // half of it is for the kill itself
}

// groupSignals receives the signals that the group was sent, by holdfast or by others. It
// is nil if there is no guardian to report them.
func (c *Child) groupSignals() <-chan os.Signal {
	if c.guardian == nil {
		return nil
	}
	return c.guardian.signals
}

// guardianKilled reports whether the guardian has killed the group. It may be called only
// after the group has ended.
func (c *Child) guardianKilled() bool { return c.guardian != nil && c.guardian.killed }

// StoppedInTime reports whether the guardian has stopped the group before the lease expired. It may
// wait for the guardian's answer, but no longer than limit. What the guardian could not signal, it has not stopped.
func (c *Child) StoppedInTime(limit time.Duration) bool {
	return c.guardian.stoppedInTime(limit) && len(c.unreachable()) == 0
}

// stopEvent says which signal has stopped the command.
type stopEvent syscall.Signal

func (s stopEvent) Signal()        {}
func (s stopEvent) String() string { return "stopped by " + signals.Name(syscall.Signal(s)) }

// signal sends a signal to the whole group. If the group is gone, that is no error. Success means only that one
// member could be signalled, which the guardian always can: unreachable has the others.
func (c *Child) signal(sig os.Signal) error {
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

// signalAndWake sends a signal to the group and continues it: a stopped process does not
// handle a signal.
func (c *Child) signalAndWake(sig os.Signal) error {
	return errors.Join(c.signal(sig), c.wake())
}

func (c *Child) wake() error { return c.signal(syscall.SIGCONT) }

func (c *Child) kill() error { return c.signal(syscall.SIGKILL) }

// unreachable returns the processes of the group that holdfast may not signal, because they have become another user: by
// sudo, for example. It asks about each process by itself.
func (c *Child) unreachable() (pids []int) {
	denied := func(pid int) bool { return errors.Is(c.probe(pid), syscall.EPERM) }
	if !c.reaped.Load() && denied(c.pid) && !isZombie(c.pid) {
		pids = append(pids, c.pid)
	}
	return append(pids, othersDenied(c.pid, c.guardian.pid(), denied)...)
}

// groupRunning reports whether the group has a living member other than the guardian. It
// may be called only after the command itself was reaped. The group's ID cannot be reused
// while the group has a member, and the guardian is one. When no other member seems to be
// left, the guardian is dismissed, and the system itself confirms that the group is empty.
func (c *Child) groupRunning() bool {
	if groupAlive(c.pid, c.guardian.pid()) {
		return true
	}
	c.guardian.dismiss()
	return groupAlive(c.pid, 0)
}

// members returns the living processes of the group other than the guardian, as far as the system shows them.
func (c *Child) members() (pids []int) {
	all, _ := groupMembers(c.pid)
	for _, p := range all {
		if !p.zombie && p.pid != c.guardian.pid() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// groupExists says what the answer to a signal that does nothing says of a process group: whether it has members.
// "Operation not permitted" means that none of them may be signalled, such as a process that has become another user. On some
// systems it can also mean that all have ended and are not reaped yet, which onlyZombies finds out.
func groupExists(answer error, onlyZombies func() bool) bool {
	if errors.Is(answer, syscall.EPERM) {
		return !onlyZombies()
	}
	return !errors.Is(answer, syscall.ESRCH)
}

// Close returns the terminal to holdfast and dismisses the guardian. The group must have
// ended.
func (c *Child) Close() {
	signal.Stop(c.stopEvents)
	signal.Stop(c.stateChanged)
	signal.Reset(jobSignals...)
	c.tty.takeForeground(c.pid)
	c.tty.close()
	c.guardian.dismiss()
	close(c.closed)
}
