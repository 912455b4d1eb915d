package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Of the children that have ended only those are reaped that nobody waits for: not
// the command, and not what a library has started in holdfast's own group.
func TestOnlyOrphansAreReaped(t *testing.T) {
	command := endedChild(t, true)
	orphan := endedChild(t, true)
	tool := endedChild(t, false)
	(&child{pid: command}).reapOrphans()
	for _, test := range []struct {
		name string
		pid  int
		want error
	}{{"the command", command, nil}, {"an orphan", orphan, syscall.ECHILD}, {"a library's tool", tool, nil}} {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(test.pid, &status, syscall.WNOHANG, nil)
		if !errors.Is(err, test.want) || err == nil && status.ExitStatus() != 7 {
			t.Errorf("%s: %v, exit code %d; want %v", test.name, err, status.ExitStatus(), test.want)
		}
	}
}

// endedChild starts a process that ends with 7, and waits until it is a zombie.
func endedChild(t *testing.T, ownGroup bool) int {
	t.Helper()
	process, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 7"},
		&os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: ownGroup}})
	if err != nil {
		t.Fatal(err)
	}
	pid := process.Pid
	if err := process.Release(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !processState(strconv.Itoa(pid)).zombie; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not end")
		}
	}
	return pid
}
