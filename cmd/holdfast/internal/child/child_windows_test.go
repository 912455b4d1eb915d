package child

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// The test binary has these roles if one of them is its first argument, with a folder as the second.
const (
	roleHoldfast = "role:holdfast" // starts roleCommand as "holdfast run" does, and waits
	roleCommand  = "role:command"  // starts roleLeftover once the file "go" exists, and waits
	roleLeaver   = "role:leaver"   // the same, but ends with code 3
	roleLeftover = "role:leftover" // waits
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && strings.HasPrefix(os.Args[1], "role:") {
		play(os.Args[1], os.Args[2])
	}
	os.Exit(m.Run())
}

// play has the role of another process. It does not return.
func play(role, dir string) {
	marker := func(name, text string) {
		part := filepath.Join(dir, name+".part")
		if os.WriteFile(part, []byte(text), 0o600) != nil || os.Rename(part, filepath.Join(dir, name)) != nil {
			os.Exit(1)
		}
	}
	switch role {
	case roleHoldfast:
		if _, _, err := Start(os.Args[0], []string{os.Args[0], roleCommand, dir}, os.Environ(), mayStart); err != nil {
			os.Exit(1)
		}
		marker("go", "")
	case roleCommand, roleLeaver:
		for start := time.Now(); time.Since(start) < patience; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
				break
			}
		}
		leftover := exec.Command(os.Args[0], roleLeftover, dir)
		if leftover.Start() != nil {
			os.Exit(1)
		}
		marker("leftover", strconv.Itoa(leftover.Process.Pid))
		if role == roleLeaver {
			os.Exit(3)
		}
	}
	time.Sleep(2 * patience)
	os.Exit(1)
}

// mayStart allows the start of a command.
func mayStart() error { return nil }

// startRole starts a command in a job, and lets it start another process once it is in the job. It
// returns that process.
func startRole(t *testing.T, role string) (c *Child, leftover windows.Handle) {
	t.Helper()
	dir := t.TempDir()
	c, _, err := Start(os.Args[0], []string{os.Args[0], role, dir}, os.Environ(), mayStart)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return c, openLeftover(t, dir)
}

// openLeftover waits for the process that a role has started.
func openLeftover(t *testing.T, dir string) windows.Handle {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, "leftover"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
		if err != nil {
			t.Fatalf("the command's process %d: %v", pid, err)
		}
		t.Cleanup(func() { _ = windows.CloseHandle(process) })
		if !running(t, process, 0) {
			t.Fatal("the command's process has ended early")
		}
		return process
	}
	t.Fatal("the command has started no process")
	return 0
}

// running reports whether a process still runs after a wait.
func running(t *testing.T, process windows.Handle, wait time.Duration) bool {
	t.Helper()
	event, err := windows.WaitForSingleObject(process, uint32(wait.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	return event == uint32(windows.WAIT_TIMEOUT)
}

// A kill ends the command and the processes that it has started.
func TestKillEndsTheJob(t *testing.T) {
	c, leftover := startRole(t, roleCommand)
	defer c.Close()
	if !c.groupRunning() {
		t.Error("the job counts as empty while two processes run")
	}
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	if running(t, leftover, patience) {
		t.Error("the command's process runs on after the kill")
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatal("the command runs on after the kill")
	}
	if code, ended := c.poll(); !ended || code != exitcode.Signal+9 {
		t.Errorf("exit code %d, ended: %t", code, ended)
	}
	for start := time.Now(); c.groupRunning(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("the job has running processes after the kill")
		}
	}
}

// A process that the command leaves behind still runs in the job, and ends with it.
func TestJobHasWhatTheCommandLeaves(t *testing.T) {
	c, leftover := startRole(t, roleLeaver)
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatal("the command does not end")
	}
	if code, _ := c.poll(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if !c.groupRunning() || !running(t, leftover, 0) {
		t.Error("the process that was left behind counts as ended")
	}
	c.Close()
	if running(t, leftover, patience) {
		t.Error("the process that was left behind runs on without the job")
	}
}

// If holdfast is killed, the system ends the command and what it has started, before another can
// acquire the lock.
func TestJobEndsWithHoldfast(t *testing.T) {
	dir := t.TempDir()
	holdfast := exec.Command(os.Args[0], roleHoldfast, dir)
	if err := holdfast.Start(); err != nil {
		t.Fatal(err)
	}
	leftover := openLeftover(t, dir)
	if err := holdfast.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holdfast.Wait() // it was killed
	if running(t, leftover, patience) {
		t.Error("the command's process runs on after holdfast was killed")
	}
}

// A command that ends at once has ended before it can be put into the job. That is no failure.
func TestJobOfAnEndedProcess(t *testing.T) {
	job, err := newJob()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = windows.CloseHandle(job) }()
	process, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^$"}, &os.ProcAttr{Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = process.Wait() }() // until then its process ID is not used again
	handle, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	if state, err := windows.WaitForSingleObject(handle, uint32(patience.Milliseconds())); err != nil || state != windows.WAIT_OBJECT_0 {
		t.Fatal(state, err)
	}
	if err := assignToJob(job, process.Pid); err != nil {
		t.Errorf("got %v", err)
	}
}
