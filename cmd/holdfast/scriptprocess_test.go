//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// stopBetweenRequests stops a process at a moment when it has no record locked. The file backend locks a record while
// it changes it. A process that is stopped just then would keep all others from the lock.
func stopBetweenRequests(ts *testscript.TestScript, id int) {
	await(ts, func() bool {
		ts.Check(syscall.Kill(id, syscall.SIGSTOP))
		awaitStopped(ts, id)
		for range 20 { // a process that runs keeps a record locked for milliseconds
			if !recordLocked(ts) {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		ts.Check(syscall.Kill(id, syscall.SIGCONT))
		return false
	}, func() string { return fmt.Sprintf("process %d keeps a record locked", id) })
}

// recordLocked reports whether any process has a record of the folder "locks" locked.
func recordLocked(ts *testscript.TestScript) bool {
	paths, err := filepath.Glob(ts.MkAbs("locks/*.lock"))
	ts.Check(err)
	return slices.ContainsFunc(paths, func(path string) bool {
		file, err := os.Open(path)
		if err != nil {
			return false // it was removed
		}
		defer func() { _ = file.Close() }() // unlocks it
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
	})
}

var signalNumbers = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "USR1": syscall.SIGUSR1, "QUIT": syscall.SIGQUIT}

func awaitStopped(ts *testscript.TestScript, id int) {
	await(ts, func() bool {
		return slices.ContainsFunc(processes(ts), func(p processInfo) bool { return p.id == id && p.state == 'T' })
	}, func() string { return fmt.Sprintf("process %d is not stopped", id) })
}

// descendants returns a process and all its descendants, parents first.
func descendants(ts *testscript.TestScript, root int) []processInfo {
	all := processes(ts)
	tree := slices.DeleteFunc(slices.Clone(all), func(p processInfo) bool { return p.id != root })
	for i := 0; i < len(tree); i++ {
		for _, p := range all {
			if p.parent == tree[i].id {
				tree = append(tree, p)
			}
		}
	}
	return tree
}

type processInfo struct {
	id, parent int
	state      byte // 'T': stopped, 'Z': ended and not reaped
	name       string
}

// processes returns the system's processes from /proc or, where there is none, from ps.
func processes(ts *testscript.TestScript) (all []processInfo) {
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	ts.Check(err)
	var list strings.Builder
	for _, dir := range dirs {
		stat, _ := os.ReadFile(dir) // it may have ended
		before, after, ok := strings.Cut(string(stat), "(")
		if end := strings.LastIndexByte(after, ')'); ok && end >= 0 {
			name := strings.ReplaceAll(after[:end], " ", "_")
			fields := strings.Fields(after[end+1:])
			fmt.Fprintln(&list, before, fields[1], fields[0], name)
		}
	}
	if len(dirs) == 0 {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=,comm=").Output()
		ts.Check(err)
		list.Write(out)
	}
	for line := range strings.Lines(list.String()) {
		var p processInfo
		var state string
		if _, err := fmt.Sscan(line, &p.id, &p.parent, &state, &p.name); err == nil {
			p.state, p.name = state[0], filepath.Base(p.name)
			all = append(all, p)
		}
	}
	return all
}

// alive reports whether a process has not ended. A zombie has.
func alive(ts *testscript.TestScript, pid int) bool {
	return slices.ContainsFunc(processes(ts), func(p processInfo) bool { return p.id == pid && p.state != 'Z' })
}
