package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// nobody is a user without rights.
const nobody = 65534

// ordinaryUser is a holdfast that an ordinary user runs, with a command that becomes root.
type ordinaryUser struct {
	dir     string
	cmd     *exec.Cmd
	command int // process ID of the command
	ended   chan struct{}

	locktest.Log // its messages
}

// mustNot ends a test if an error is not nil.
func mustNot(t *testing.T) func(error) {
	return func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runsOn checks that the command has not ended.
func (u *ordinaryUser) runsOn(t *testing.T) {
	t.Helper()
	if !alive(mustNot(t), u.command) {
		t.Fatalf("the command has ended:\n%s", u)
	}
}

// end kills the command as root, and waits until holdfast has ended with a code.
func (u *ordinaryUser) end(t *testing.T, want int) {
	t.Helper()
	if err := syscall.Kill(u.command, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-u.ended:
	case <-time.After(patience):
		t.Fatalf("holdfast does not end:\n%s", u)
	}
	if code := u.cmd.ProcessState.ExitCode(); code != want {
		t.Errorf("exit code %d, want %d:\n%s", code, want, u)
	}
}

// startOrdinaryUser starts holdfast as nobody. By a shell, the command itself stays nobody's and a process that it starts becomes root.
func startOrdinaryUser(t *testing.T, ttl string, byShell bool) *ordinaryUser {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a program that starts as another user")
	}
	dir, err := os.MkdirTemp("", "otheruser") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	u := &ordinaryUser{dir: dir, ended: make(chan struct{})}
	locks, program, helper := filepath.Join(dir, "locks"), filepath.Join(dir, "holdfast"), filepath.Join(dir, becomesRoot)
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(locks, 0o700), os.Chown(locks, nobody, nobody), //nolint:gosec // for all users
		copyOwnProgram(program, 0o755), copyOwnProgram(helper, 0o755|os.ModeSetuid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	asNobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	probe := exec.Command(helper, filepath.Join(dir, "none", "none"))
	probe.SysProcAttr = asNobody
	if text, _ := probe.CombinedOutput(); !strings.Contains(string(text), "no such file") { // it fails after it has become root
		t.Skipf("this file system has no set-user-ID programs, or root is not allowed to use them: %s", text)
	}
	pidFile := filepath.Join(dir, "pid")
	if err := os.WriteFile(pidFile, nil, 0o644); err != nil { //nolint:gosec // nobody is told
		t.Fatal(err)
	}
	command := []string{helper, pidFile}
	if byShell {
		command = []string{"sh", "-c", `"$0" "$1"; :`, helper, pidFile}
	}
	u.cmd = exec.Command(program, append([]string{"run", "-v", "--ttl", ttl, "--backend", "file:" + locks, "job", "--"}, command...)...)
	u.cmd.Dir, u.cmd.SysProcAttr = dir, asNobody
	u.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GORACE=" + gorace}
	u.cmd.Stderr = u
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = u.cmd.Wait()
		close(u.ended)
	}()
	t.Cleanup(func() {
		_ = u.cmd.Process.Signal(syscall.SIGCONT)
		if u.command > 0 {
			_ = syscall.Kill(u.command, syscall.SIGKILL)
		}
		_ = u.cmd.Process.Kill()
		<-u.ended
	})
	locktest.Eventually(t, "the command is root", func() bool {
		text, err := os.ReadFile(pidFile)
		u.command, _ = strconv.Atoi(string(text))
		return err == nil && u.command > 0
	})
	return u
}

// copyOwnProgram copies this test's program.
func copyOwnProgram(to string, mode os.FileMode) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close(), os.Chmod(to, mode))
}

// A command that became another user cannot be signalled. Holdfast says so at once, before anybody wants it stopped, and never says that
// it has stopped it: the guardian, a member of the group, receives each signal to the group.
func TestCommandOfAnotherUser(t *testing.T) {
	for name, byShell := range map[string]bool{"the command itself": false, "a process of the command": true} {
		t.Run(name, func(t *testing.T) {
			u := startOrdinaryUser(t, "1m", byShell)
			number := strconv.Itoa(u.command)
			u.Await(t, "cannot signal process "+number)
			u.Await(t, "run holdfast itself as that user")
			if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			u.Await(t, "SIGTERM was not sent to process "+number)
			time.Sleep(child.SameRequestWindow + child.ForwardDelay) // the next one is a new request
			if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			u.Await(t, "process "+number+" was not killed")
			u.runsOn(t)
			u.end(t, map[bool]int{false: exitcode.Signal + int(syscall.SIGKILL), true: exitcode.Signal + int(syscall.SIGTERM)}[byShell])
			for _, claim := range []string{"forwarded SIGTERM", "killing process group"} {
				if strings.Contains(u.String(), claim) {
					t.Errorf("%q is claimed:\n%s", claim, u)
				}
			}
			u.Await(t, `released "job"`)
		})
	}
}

// After a loss, holdfast does not say that such a command will stop, and reports the overrun: the next holder runs beside it.
func TestLostByCommandOfAnotherUser(t *testing.T) {
	u := startOrdinaryUser(t, "3s", false)
	u.Await(t, "cannot signal process")
	if err := os.Rename(filepath.Join(u.dir, "locks"), filepath.Join(u.dir, "away")); err != nil {
		t.Fatal(err)
	}
	u.Await(t, `lost "job"`)
	u.Await(t, "OVERRUN")
	u.runsOn(t)
	u.end(t, exitcode.Lost)
	for _, claim := range []string{"the command has", "killing process group", "killing the command"} {
		if strings.Contains(u.String(), claim) {
			t.Errorf("%q is claimed:\n%s", claim, u)
		}
	}
}

// A guardian that kills the group in time, while holdfast is stopped, does not stop such a command: the overrun is reported.
func TestGuardianOfCommandOfAnotherUser(t *testing.T) {
	u := startOrdinaryUser(t, "3s", false)
	if err := u.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	guardian := func() bool {
		return slices.ContainsFunc(processes(mustNot(t)), func(p processInfo) bool {
			return p.parent == u.cmd.Process.Pid && p.id != u.command && p.state != 'Z'
		})
	}
	locktest.Eventually(t, "the guardian kills the group", func() bool { return !guardian() })
	u.runsOn(t)
	if err := u.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	u.Await(t, "OVERRUN")
	u.end(t, exitcode.Lost)
}

// When its lock is freed by an operator, the next holder works beside it: nothing can stop it. Holdfast says that, and claims no kill.
func TestNextHolderBesideCommandOfAnotherUser(t *testing.T) {
	u := startOrdinaryUser(t, "15s", false)
	u.Await(t, "cannot signal process")
	token := regexp.MustCompile(`acquired "job".*, token (\d+)`).FindStringSubmatch(u.String())
	if token == nil {
		t.Fatalf("no token:\n%s", u)
	}
	for _, args := range [][]string{{"break", "job", "--now", "--yes", "--token", token[1]}, {"run", "--try", "job", "--", "true"}} {
		next := exec.Command(u.cmd.Path, append([]string{"--backend", "file:" + filepath.Join(u.dir, "locks")}, args...)...)
		next.Dir, next.Env, next.SysProcAttr = u.cmd.Dir, u.cmd.Env, u.cmd.SysProcAttr
		if out, err := next.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	u.runsOn(t)
	u.Await(t, "cannot be stopped: another may hold the lock while it runs")
	u.runsOn(t)
	u.end(t, exitcode.Lost)
	if strings.Contains(u.String(), "killing") {
		t.Errorf("a kill is claimed:\n%s", u)
	}
}

// If holdfast is killed, such a command cannot be ended, and keeps the lock until the lease ends: nobody works beside it until then.
func TestKilledHoldfastOfCommandOfAnotherUser(t *testing.T) {
	t.Parallel() // the releaser waits for 10 s
	u := startOrdinaryUser(t, "1h", false)
	u.Await(t, "cannot signal process") // by then the guardian has what the releaser needs
	releaser := func() bool {
		return slices.ContainsFunc(processes(mustNot(t)), func(p processInfo) bool {
			dir, _ := os.Readlink("/proc/" + strconv.Itoa(p.id) + "/cwd")
			args, _ := os.ReadFile("/proc/" + strconv.Itoa(p.id) + "/cmdline")
			return dir == u.dir && strings.HasPrefix(string(args), child.GuardianName+"\x00release") && p.state != 'Z'
		})
	}
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "a releaser runs", releaser)
	locktest.Eventually(t, "the releaser ends", func() bool { return !releaser() })
	u.runsOn(t)
	next := exec.Command(u.cmd.Path, "--backend", "file:"+filepath.Join(u.dir, "locks"), "run", "--try", "job", "--", "true")
	next.Dir, next.Env, next.SysProcAttr = u.cmd.Dir, u.cmd.Env, u.cmd.SysProcAttr
	out, err := next.CombinedOutput()
	if next.ProcessState.ExitCode() != exitcode.Held {
		t.Errorf("the lock was released while the command runs: %v\n%s", err, out)
	}
}
