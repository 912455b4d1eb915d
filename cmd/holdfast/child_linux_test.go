package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Only orphans are reaped: not the command, and not a process that an SDK has started in
// holdfast's own group.
func TestOnlyOrphansAreReaped(t *testing.T) {
	command := endedChild(t, true)
	orphan := endedChild(t, true)
	helper := endedChild(t, false)
	(&child{pid: command}).reapOrphans()
	for _, test := range []struct {
		name string
		pid  int
		want error
	}{{"the command", command, nil}, {"an orphan", orphan, syscall.ECHILD}, {"an SDK's helper", helper, nil}} {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(test.pid, &status, syscall.WNOHANG, nil)
		if !errors.Is(err, test.want) || err == nil && status.ExitStatus() != 7 {
			t.Errorf("%s: %v, exit code %d; want %v", test.name, err, status.ExitStatus(), test.want)
		}
	}
}

// endedChild starts a process, waits until it has ended with exit code 7, and leaves it a zombie.
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
	for deadline := time.Now().Add(patience); !readProcess(strconv.Itoa(pid)).zombie; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not end")
		}
	}
	return pid
}
