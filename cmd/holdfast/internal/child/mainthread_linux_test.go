package child

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const endsMainThread = "HOLDFAST_TEST_ENDS_MAIN_THREAD"

// In the child: during init the main goroutine is locked to the main thread: SYS_EXIT ends that thread alone.
func init() {
	if os.Getenv(endsMainThread) == "" {
		return
	}
	runs := make(chan struct{})
	go func() {
		close(runs)
		time.Sleep(time.Minute)
		os.Exit(0)
	}()
	<-runs // on a thread of its own, since this one is locked
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A process whose main thread has ended (pthread_exit) looks like a zombie, and its other threads work.
func TestProcessWithoutItsMainThreadIsAlive(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	c, unguarded, err := Start("/bin/sh", []string{"sh", "-c", `"$0" & echo $! >"$1"`, self, file},
		append(os.Environ(), endsMainThread+"=1"), mayStart)
	if err != nil || unguarded != nil {
		t.Fatal(err, unguarded)
	}
	defer c.Close()
	eventually(t, "the command ends", func() bool { _, ended := c.poll(); return ended })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	eventually(t, "its main thread ends", func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return strings.Contains(string(stat), ") Z ")
	})
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil || len(tasks) < 2 {
		t.Fatalf("no other thread lives: %v, %v", tasks, err)
	}
	if !c.groupRunning() {
		t.Error("the group counts as ended while a process of it works")
	}
}
