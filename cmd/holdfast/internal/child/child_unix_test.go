//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
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
