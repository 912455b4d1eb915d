package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttributes gives the command a process group of its own and has the kernel kill it
// when holdfast is killed, even if the guardian is killed too. The kernel kills only the
// command itself, not the processes that it has started, and no set-user-ID program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupAlive reports whether a process group has a member other than the guardian that is
// not a zombie. A zombie does not count: if its parent never reaps it, it stays forever.
func groupAlive(group, guardian int) bool {
	if !groupExists(syscall.Kill(-group, 0), func() bool { return false }) { // /proc shows the zombies
		return false
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	found := false
	for _, p := range processes {
		state := readProcess(p.Name())
		member := state.group == group
		if member && !state.zombie && state.pid != guardian {
			return true
		}
		found = found || member
	}
	return !found // a member that /proc does not show may be alive
}

// othersDenied returns the living members of a group, other than its leader and the guardian, that are denied to holdfast.
func othersDenied(group, guardian int, denied func(pid int) bool) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		p := readProcess(e.Name())
		if p.group != group || p.zombie || p.pid == group || p.pid == guardian || !denied(p.pid) {
			continue
		}
		if again := readProcess(e.Name()); again.group == group && !again.zombie { // it may have ended meanwhile
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// isZombie reports whether a process has ended and is not reaped yet.
func isZombie(pid int) bool { return readProcess(strconv.Itoa(pid)).zombie }

// orphans returns the children of holdfast that have ended and are not reaped yet. Of the members of holdfast's own group it
// returns only those that holdfast has inherited: another can be a credential helper that an SDK has started and waits for.
func orphans(inherited map[int]bool) (pids []int) {
	ownGroup := syscall.Getpgrp()
	for _, p := range ownProcesses() {
		if p.zombie && (p.group != ownGroup || inherited[p.pid]) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// ownProcesses returns the children of this process.
func ownProcesses() (found []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	self := os.Getpid()
	for _, e := range entries {
		if p := readProcess(e.Name()); p.group >= 0 && p.parent == self {
			found = append(found, p)
		}
	}
	return found
}

// inheritedChildren returns the IDs of the children that exist when holdfast begins: a shell that has become holdfast by exec
// had started them.
func inheritedChildren() map[int]bool {
	pids := map[int]bool{}
	for _, p := range ownProcesses() {
		pids[p.pid] = true
	}
	return pids
}

// process is the state of a process as /proc shows it.
type process struct {
	pid, parent, group int
	zombie             bool // it has ended and is not reaped yet
}

// readProcess reads /proc/PID/stat (see proc_pid_stat(5)): after the name in parentheses
// come the state, the parent and the process group. If the entry is not a process, or the
// process is gone, the group is -1.
func readProcess(entry string) process {
	none := process{group: -1}
	pid, err := strconv.Atoi(entry)
	if err != nil {
		return none
	}
	stat, err := os.ReadFile("/proc/" + entry + "/stat")
	if err != nil {
		return none
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return none
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	if err1 != nil || err2 != nil {
		return none
	}
	state, threads := fields[0][0], "1"
	if len(fields) > 17 {
		threads = string(fields[17])
	}
	// Promise 7: a process whose main thread has ended looks like a zombie while its other threads work.
	return process{pid, parent, group, (state == 'Z' || state == 'X') && (threads == "0" || threads == "1")}
}
