package child

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
)

// Only orphans are reaped, and children that a shell before holdfast had started: not a process that holdfast has started, and
// not one that an SDK has started in holdfast's own group.
func TestOnlyOrphansAreReaped(t *testing.T) {
	command := endedChild(t, true, ownChildren.start)
	defer ownChildren.reaped(command)
	orphan := endedChild(t, true, os.StartProcess)
	child := endedChild(t, false, os.StartProcess)
	inherited := inheritedChildren()
	if !inherited[child] {
		t.Fatalf("%v does not have %d", inherited, child)
	}
	maps.DeleteFunc(inherited, func(pid int, _ bool) bool { return pid != child }) // others may be those of other tests
	helper := endedChild(t, false, os.StartProcess)
	stop := reapOrphans(inherited)
	for _, pid := range []int{orphan, child} {
		eventually(t, "it is reaped", func() bool { return readProcess(strconv.Itoa(pid)).group < 0 })
	}
	stop()
	if len(inherited) > 0 {
		t.Errorf("%v may be the ID of another process by now", inherited)
	}
	for _, test := range []struct {
		name string
		pid  int
		want error
	}{{"the command", command, nil}, {"an orphan", orphan, syscall.ECHILD},
		{"an inherited child", child, syscall.ECHILD}, {"an SDK's helper", helper, nil}} {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(test.pid, &status, syscall.WNOHANG, nil)
		if !errors.Is(err, test.want) || err == nil && status.ExitStatus() != 7 {
			t.Errorf("%s: %v, exit code %d; want %v", test.name, err, status.ExitStatus(), test.want)
		}
	}
}

// endedChild starts a process, waits until it has ended with exit code 7, and leaves it a zombie.
func endedChild(t *testing.T, ownGroup bool, start func(string, []string, *os.ProcAttr) (*os.Process, error)) int {
	t.Helper()
	process, err := start("/bin/sh", []string{"sh", "-c", "exit 7"},
		&os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: ownGroup}})
	if err != nil {
		t.Fatal(err)
	}
	pid := process.Pid
	if err := process.Release(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process ends", func() bool { return readProcess(strconv.Itoa(pid)).zombie })
	return pid
}

// The reaper does not take the status of the command, even of one that ends at once, or of the guardian. It reaps an orphan
// that ends while a process is started.
func TestReaperLeavesTheCommandItsStatus(t *testing.T) {
	defer reapOrphans(nil)()
	for range 30 {
		c, unguarded, err := Start("/bin/sh", []string{"sh", "-c", "exit 7"}, os.Environ(), mayStart)
		if err != nil || unguarded != nil {
			t.Fatal(err, unguarded)
		}
		code, ended := 0, false
		eventually(t, "the command ends", func() bool {
			code, ended = c.poll()
			return ended
		})
		if code != 7 {
			t.Errorf("exit code %d", code)
		}
		eventually(t, "the group ends", func() bool { return !c.groupRunning() })
		c.Close()
	}
	starting := func(n int) {
		ownChildren.mu.Lock()
		defer ownChildren.mu.Unlock()
		ownChildren.starting += n
	}
	starting(1)
	orphan := endedChild(t, true, os.StartProcess) // it could be the one that is being started
	ownChildren.reapOrphan(orphan)
	if !readProcess(strconv.Itoa(orphan)).zombie {
		t.Error("a process that may be the command was reaped")
	}
	starting(-1)
	last, err := ownChildren.start("/bin/true", []string{"true"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := last.Wait(); err != nil || !state.Success() {
		t.Error(state, err)
	}
	ownChildren.reaped(last.Pid)
	eventually(t, "the orphan is reaped", func() bool { return readProcess(strconv.Itoa(orphan)).group < 0 })
	ownChildren.mu.Lock()
	defer ownChildren.mu.Unlock()
	if len(ownChildren.pids) > 0 || ownChildren.starting > 0 {
		t.Errorf("%v are still kept from the reaper; %d are starting", ownChildren.pids, ownChildren.starting)
	}
}

// While a group keeps the lock, its processes are named every few seconds, before and after SIGKILL.
func TestProcessesThatKeepTheLockAreNamed(t *testing.T) {
	c := guardedCommand(t)
	var out bytes.Buffer
	log := messages.NewLog(writerFunc(func(line []byte) { out.Write(line) }), false, false)
	s := &supervisor{hold: newTestLease(time.Hour, time.Minute), child: c, log: log, commandEnded: true}
	for _, after := range []string{"", " after SIGKILL"} {
		s.logIfDue()
		s.logIfDue() // not again at once
		want := fmt.Sprintf("process group %d (process %d) is still running%s; \"job\" is released only when it has ended\n", c.pid, c.pid, after)
		if out.String() != "holdfast: "+want {
			t.Errorf("%q, want %q", out.String(), want)
		}
		out.Reset()
		s.killSent, s.nextStuckReport = true, time.Time{}
	}
}

// Only a /proc of the process's own PID namespace counts, also where both namespaces have the same ID for the process.
func TestStatusOfAnotherNamespace(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tholdfast\nTgid:\t7\nPid:\t7\nPPid:\t1\nNSpid:\t7\nSeccomp:\t0\n": true,
		"Name:\tholdfast\nPid:\t7\nPPid:\t1\n":                                   true, // an older system
		"Name:\tholdfast\nPid:\t4711\nPPid:\t1\nNSpid:\t4711\t7\n":               false,
		"Name:\tholdfast\nPid:\t7\nPPid:\t1\nNSpid:\t7\t7\n":                     false,
		"Name:\tholdfast\nPid:\t8\nPPid:\t1\nNSpid:\t8\n":                        false,
		"": false,
	} {
		if got := statusIsOf([]byte(status), 7); got != want {
			t.Errorf("%q: %t, want %t", status, got, want)
		}
	}
	if !procIsOwn() {
		t.Error("this process is not in its own /proc")
	}
}
