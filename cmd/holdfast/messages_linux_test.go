package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// stubborn is a command that ignores SIGTERM, as does another member of its group. It does
// not write to standard error, where holdfast's messages go.
const stubborn = `sh -c 'trap "" TERM HUP; echo $$ >grandchild; while :; do sleep 0.02; done' &
trap "" TERM
until test -s grandchild; do sleep 0.02; done
echo $$ >command
while :; do sleep 0.02; done
`

// Exclusion does not depend on a reader of the messages. While none can be written and the
// lock is lost, the command's whole group is killed before another acquires the lock, and
// holdfast ends too. It kills the group a fifth of the grace before the lease ends, which is longer here than a
// busy machine stands still.
func TestLossWithBlockedStderr(t *testing.T) {
	serverprocess.Long(t, "fills a pipe until a lease ends")
	t.Run("pipe", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		run := exec.Command("holdfast", "run", "-v", "--ttl", "60s", "--grace", "25s", "job", "--", "sh", "-c", stubborn)
		run.Dir, run.Env, run.Stderr = dir, blockedEnv(dir), fullPipe(t)
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()
		loseToAnother(t, dir)
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitcode.Lost {
				t.Errorf("holdfast ended with %v, want exit code %d", err, exitcode.Lost)
			}
		case <-time.After(patience):
			_ = run.Process.Kill()
			t.Logf("holdfast ended with %v", <-ended)
			t.Error("holdfast does not end")
		}
	})
	t.Run("terminal after Ctrl-S", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		c := newConsole(t)
		c.enter("cd " + dir + "; export HOLDFAST_BACKEND=file:" + dir + "/locks; echo rea''dy\n")
		c.expect("ready\r\n")
		if err := os.WriteFile(filepath.Join(dir, "stubborn.sh"), []byte(stubborn), 0o600); err != nil {
			t.Fatal(err)
		}
		c.enter("holdfast run -v --ttl 60s --grace 25s job -- sh stubborn.sh\n")
		c.expect("started process")
		c.enter(ctrlS)
		loseToAnother(t, dir)
		c.enter(ctrlQ)
		c.expect(`lost "job"`)
		c.expectPrompt(exitcode.Lost)
	})
}

const ctrlS, ctrlQ = "\x13", "\x11"

func blockedEnv(dir string) []string {
	return append(os.Environ(), "HOLDFAST_BACKEND=file:"+dir+"/locks", "GORACE="+gorace)
}

// loseToAnother takes the backend away from the command in dir until the lease has expired,
// waits until another acquires the lock, and checks that the command's group has ended by
// then.
func loseToAnother(t *testing.T, dir string) {
	t.Helper()
	pids := []int{readPid(t, filepath.Join(dir, "command")), readPid(t, filepath.Join(dir, "grandchild"))}
	locks := filepath.Join(dir, "locks")
	if err := os.Rename(locks, locks+".away"); err != nil {
		t.Fatal(err)
	}
	// The other uses a copy, so that it sees the lease expire.
	if out, err := exec.Command("cp", "-r", locks+".away", dir+"/seen").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	next := exec.Command("holdfast", "run", "--wait", (4 * patience).String(), "job", "--", "sh", "-c",
		"for p in "+strconv.Itoa(pids[0])+" "+strconv.Itoa(pids[1])+`; do
			if kill -0 $p 2>/dev/null && ! grep -q '^State:.Z' /proc/$p/status; then echo $p is alive; fi
		done`)
	next.Dir = dir
	next.Env = append(os.Environ(), "HOLDFAST_BACKEND=file:"+dir+"/seen", "GORACE="+gorace)
	var out, messages strings.Builder
	next.Stdout, next.Stderr = &out, &messages
	if err := next.Run(); err != nil {
		t.Fatalf("the other did not acquire the lock: %v\n%s", err, messages.String())
	}
	if out.Len() > 0 {
		t.Errorf("while the other held the lock: %s", out.String())
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func readPid(t *testing.T, file string) int {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return pid
		}
	}
	t.Fatalf("%s was not written", file)
	return 0
}

// After "stty tostop" the terminal stops a process that writes to it from the background.
// That must not stop holdfast, which could then not supervise its command.
func TestBackgroundMessagesAfterTostop(t *testing.T) {
	c := newConsole(t)
	c.enter("stty tostop; holdfast run -v lock -- sleep 100 &\n")
	c.expect("acquired")
	c.expect("started process")
	// In one line: at the next prompt the shell would forget a job that has ended.
	c.enter("kill -USR2 $!; wait $!; echo code=$?.\n")
	c.expect("forwarded SIGUSR2")
	c.expect("released")
	c.expect(fmt.Sprintf("code=%d.", exitcode.Signal+int(syscall.SIGUSR2)))
}

// A usage error ends holdfast at once, even if its message cannot be written.
func TestUsageErrorWithBlockedStderr(t *testing.T) {
	for _, args := range [][]string{{}, {"run", "--no-such-flag"}, {"help", "no-such-command"}, {"status", ""}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			run := exec.Command("holdfast", args...)
			run.Env, run.Stderr = blockedEnv(t.TempDir()), fullPipe(t)
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = run.Wait() // the exit code is checked below
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				_ = run.Process.Kill()
				<-ended
				t.Fatal("holdfast does not end")
			}
			if code := run.ProcessState.ExitCode(); code != exitcode.Usage {
				t.Errorf("exit code %d, want %d", code, exitcode.Usage)
			}
		})
	}
}

// fullPipe returns the writing end of a full pipe.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = writer.Close(), reader.Close() })
	filler := bytes.Repeat([]byte("x"), 1<<10)
	for deadline := time.Now().Add(patience); ; { // a write to a full pipe waits for its deadline
		_ = writer.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := writer.Write(filler); err != nil || time.Now().After(deadline) {
			return writer
		}
	}
}
