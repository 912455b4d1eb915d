package child

import (
	"bytes"
	"encoding/binary"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childAttributes gives the command a process group of its own and has the kernel kill it
// when holdfast is killed, even if the guardian is killed too. The kernel kills only the
// command itself, not the processes that it has started, and no set-user-ID program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// procIsOwn reports whether /proc shows this process under its own ID. In a PID namespace that was made without a /proc of its own, as by
// "unshare -pf" or in a sandbox with the host's /proc, the IDs in it are those of other processes; or nothing is mounted there. Then only
// signals and wait4 say what a process group has, as on systems without /proc.
var procIsOwn = sync.OnceValue(func() bool {
	status, _ := os.ReadFile("/proc/self/status")
	return statusIsOf(status, os.Getpid())
})

// statusIsOf reports whether /proc/self/status is that of this process, as its own PID namespace shows it. NSpid lists the process's ID
// in the namespace of /proc and in each namespace below it, down to the process's own.
func statusIsOf(status []byte, pid int) bool {
	own := false
	for line := range bytes.Lines(status) {
		switch fields := bytes.Fields(line); {
		case len(fields) == 0:
		case string(fields[0]) == "Pid:":
			own = len(fields) == 2 && string(fields[1]) == strconv.Itoa(pid)
		case string(fields[0]) == "NSpid:": // since Linux 4.1
			return own && len(fields) == 2
		}
	}
	return own
}

// groupAlive reports whether a process group has a member other than the guardian that is
// not a zombie. A zombie does not count: if its parent never reaps it, it stays forever.
func groupAlive(group, guardian int) bool {
	if !procIsOwn() { // the guardian is no member
		for gone, err := 1, error(nil); err == nil && gone > 0; { // holdfast has inherited them; see ReapOrphans
			gone, err = syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		}
		return groupExists(syscall.Kill(-group, 0), func() bool { return false })
	}
	if !groupExists(syscall.Kill(-group, 0), func() bool { return false }) { // /proc shows the zombies
		return false
	}
	members, known := groupMembers(group)
	// A member that /proc does not show may be alive.
	return !known || slices.ContainsFunc(members, func(p process) bool { return !p.zombie && p.pid != guardian })
}

// groupMembers returns the members of a process group, with zombies. known is false if /proc shows none.
func groupMembers(group int) (members []process, known bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		if p := readProcess(e.Name()); p.group == group {
			members = append(members, p)
		}
	}
	return members, len(members) > 0
}

// othersDenied returns the living members of a group, other than its leader and the guardian, that are denied to holdfast.
func othersDenied(group, guardian int, denied func(pid int) bool) (pids []int) {
	members, _ := groupMembers(group)
	for _, p := range members {
		if p.zombie || p.pid == group || p.pid == guardian || !denied(p.pid) {
			continue
		}
		if again := readProcess(strconv.Itoa(p.pid)); again.group == group && !again.zombie { // it may have ended meanwhile
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// isZombie reports whether a process has ended and is not reaped yet.
func isZombie(pid int) bool { return readProcess(strconv.Itoa(pid)).zombie }

// inheritOrphans reports whether this process becomes the parent of processes that ended after theirs. Process 1 does. Where /proc shows
// nothing of the command's group, any holdfast must: else a member whose new parent never reaps it would count as alive forever.
func inheritOrphans() bool {
	return os.Getpid() == 1 || !procIsOwn() && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// orphans returns the children of holdfast that have ended and are not reaped yet. Of the members of holdfast's own group it
// returns only those that holdfast has inherited: another can be a credential helper that an SDK has started and waits for.
func orphans(inherited map[int]bool) iter.Seq[int] {
	if !procIsOwn() {
		return orphansByWait
	}
	return func(yield func(int) bool) {
		ownGroup := syscall.Getpgrp()
		for _, p := range ownProcesses() {
			if p.zombie && (p.group != ownGroup || inherited[p.pid]) && !yield(p.pid) {
				return
			}
		}
	}
}

// orphansByWait is orphans without /proc. It ends at one that is not reaped, since the system shows the others only after it.
func orphansByWait(yield func(int) bool) {
	for last := 0; ; {
		pid := endedChildPID()
		group, err := syscall.Getpgid(pid)
		if pid == 0 || pid == last || err != nil || group == syscall.Getpgrp() || !yield(pid) {
			return
		}
		last = pid
	}
}

// endedChildPID returns a child that has ended, and does not reap it; 0: none has.
func endedChildPID() int {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return 0
	}
	// Three numbers and then, aligned like a pointer, the process ID: x/sys/unix does not name it.
	const offset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	bytes := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	return int(binary.NativeEndian.Uint32(bytes[offset:]))
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

// seesEnvironments reports whether the environments of other processes can be read.
func seesEnvironments() bool {
	_, err := os.ReadFile("/proc/self/environ")
	return err == nil
}

// anyMarked reports whether a process has all marks in its environment, as far as this process may read it, or that it cannot tell.
func anyMarked(marks []string) bool {
	entries, err := os.ReadDir("/proc")
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		environment, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // that of a zombie is empty
		found := strings.Split(string(environment), "\x00")
		return !slices.ContainsFunc(marks, func(mark string) bool { return !slices.Contains(found, mark) })
	})
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
// come the state, the parent and the process group. If the entry is not a process of this
// namespace, or the process is gone, the group is -1.
func readProcess(entry string) process {
	none := process{group: -1}
	pid, err := strconv.Atoi(entry)
	if err != nil || !procIsOwn() {
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
