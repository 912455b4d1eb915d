//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A group that holdfast may not signal still exists: the lock is not released while it does work.
func TestGroupExists(t *testing.T) {
	for name, test := range map[string]struct {
		answer      error
		onlyZombies bool
		want        bool
	}{
		"signalled":    {nil, false, true},
		"another user": {syscall.EPERM, false, true},
		"ended":        {syscall.ESRCH, false, false},
		"not reaped":   {syscall.EPERM, true, false},
		"unclear":      {syscall.EINVAL, false, true},
	} {
		if got := groupExists(test.answer, func() bool { return test.onlyZombies }); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A stop by another process, which will continue the command, does not suspend holdfast, also some time after Ctrl-Z, or just
// after the window has changed.
func TestAStopByAnotherProcessDoesNotSuspend(t *testing.T) {
	c := startCommand(t, "exec sleep 100")
	if c.tty == nil {
		c.tty = &terminal{fd: -1}
	}
	c.askedStop = time.Now().Add(-stopWindow)
	for _, event := range []os.Signal{syscall.SIGWINCH, stopEvent(syscall.SIGSTOP)} {
		c.jobControl(event, func() { t.Fatal("holdfast is suspended") }, func() bool { return false })
	}
}

// groupAlive follows a real group from its start until its member is reaped.
func TestGroupAlive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if !groupAlive(cmd.Process.Pid, 0) {
		t.Error("a group with a process has ended")
	}
	if err := cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if groupAlive(cmd.Process.Pid, 0) {
		t.Error("a group without a process exists")
	}
}
