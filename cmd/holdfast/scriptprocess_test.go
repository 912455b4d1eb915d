//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
		return slices.ContainsFunc(processes(ts.Check), func(p processInfo) bool { return p.id == id && p.state == 'T' })
	}, func() string { return fmt.Sprintf("process %d is not stopped", id) })
}

// descendants returns a process and all its descendants, parents first.
func descendants(ts *testscript.TestScript, root int) []processInfo {
	all := processes(ts.Check)
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

// processes returns the system's processes from /proc or, where there is none, from ps. check ends the test if its error is not nil.
func processes(check func(error)) (all []processInfo) {
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	check(err)
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
		check(err)
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
func alive(check func(error), pid int) bool {
	return slices.ContainsFunc(processes(check), func(p processInfo) bool { return p.id == pid && p.state != 'Z' })
}

// becomesRoot is the name of a program that the kernel starts as root for every user, as it does sudo.
const becomesRoot = "becomes-root"

// runBecomesRoot becomes root, writes its process ID to a file, and waits to be killed.
func runBecomesRoot() {
	if err := syscall.Setreuid(0, 0); err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[1], []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	time.Sleep(4 * patience)
}
