// Package owner labels Docker containers and networks with the process that created them, so that
// what a killed process left can be removed later.
package owner

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Label names the process, as HOST/PID.
const Label = "holdfast.owner"

// Labels returns the label of this process.
func Labels() map[string]string {
	return map[string]string{Label: host() + "/" + strconv.Itoa(os.Getpid())}
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// Gone reports whether the owner is a process of this machine that has ended. A process whose parent
// has not noticed yet that it has ended (a zombie, on Linux) counts as ended.
func Gone(labels map[string]string) bool {
	on, pid, ok := strings.Cut(labels[Label], "/")
	n, err := strconv.Atoi(pid)
	if !ok || err != nil || on != host() {
		return false
	}
	process, err := os.FindProcess(n)
	if err != nil { // only Windows: nobody has the process, or it is another user's
		return !errors.Is(err, os.ErrPermission)
	}
	if errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return true
	}
	stat, _ := os.ReadFile("/proc/" + pid + "/stat") // other systems have none
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("Z"))
}
