//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// endingSignals ask holdfast to end. While it waits they do; while the command
// runs they are passed on. otherSignals are passed on while the command runs.
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
	// exited gets the exit code, once, when the command itself has ended.
	exited chan int
	// stops gets the signal that stopped the command each time one does.
	stops chan os.Signal
	// orphans tells that there may be one to reap: never unless holdfast is process 1.
	orphans chan os.Signal
	tty     *terminal
}

// startChild runs path in a process group of its own, so that a signal reaches
// what the command started, too.
func startChild(path string, args, env []string) (*child, error) {
	c := &child{exited: make(chan int, 1), stops: make(chan os.Signal, 8), orphans: make(chan os.Signal, 1)}
	signal.Notify(c.stops, jobSignals...) // before the start: none may be missed
	if os.Getpid() == 1 {
		signal.Notify(c.orphans, syscall.SIGCHLD)
	}
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
		_ = process.Release() // wait4 below does the waiting: it tells of stops, too
		started <- nil
		c.exited <- c.wait()
	}()
	if err := <-started; err != nil {
		c.close()
		return nil, err
	}
	c.tty = openTerminal()
	return c, nil
}

// wait reaps the command and returns its exit code.
func (c *child) wait() int {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return codeUnavailable // somebody else reaped it: its code is not to be had
		case status.Stopped():
			select {
			case c.stops <- stopped(status.StopSignal()):
			default: // one is being dealt with
			}
		case status.Signaled():
			return codeSignal + int(status.Signal())
		case status.Exited():
			return status.ExitStatus()
		}
	}
}

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
	return errors.Join(c.signal(sig), c.signal(syscall.SIGCONT))
}

func (c *child) kill() error { return c.signal(syscall.SIGKILL) }

// remains reports whether the group has a living member. It is asked after the
// command itself was reaped. Its number stays taken while the group has members,
// so nobody else is meant by it.
func (c *child) remains() bool {
	for {
		// Where holdfast adopts orphans, they are its to reap.
		pid, err := syscall.Wait4(-c.pid, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			break
		}
	}
	return groupLives(c.pid)
}

// close takes the terminal back. The group must be gone.
func (c *child) close() {
	signal.Stop(c.stops)
	signal.Stop(c.orphans)
	signal.Reset(jobSignals...)
	c.tty.take(c.pid)
	c.tty.close()
}

// runnable finds the command's file before the lock is taken.
func runnable(command string) (string, error) {
	path, err := exec.LookPath(command)
	if err == nil {
		return path, nil
	}
	code := codeNotFound
	if errors.Is(err, os.ErrPermission) {
		code = codeNotRunnable
	}
	return "", &exitError{code, errors.New(withoutSecret(err.Error()))}
}
