package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// console is an interactive shell on a terminal of its own.
type console struct {
	t   *testing.T
	pty *os.File
	env []string

	mu   sync.Mutex
	seen bytes.Buffer
	read int       // how much expect has consumed
	copy io.Writer // gets what is seen too, or nil
}

func newConsole(t *testing.T) *console {
	t.Helper()
	return openConsole(t, "sh", "-i")
}

// openConsole opens a terminal for a command.
func openConsole(t *testing.T, command string, args ...string) *console {
	t.Helper()
	return startConsole(t, func(*console, *exec.Cmd) {}, command, args...)
}

// startConsole opens a terminal for a command. It calls prepare before the command starts.
func startConsole(t *testing.T, prepare func(*console, *exec.Cmd), command string, args ...string) *console {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	pty := os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { _ = pty.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()

	shell := exec.Command(command, args...)
	shell.Env = append(os.Environ(), "HOLDFAST_BACKEND=file:"+t.TempDir(), "GORACE="+raceLog(t), "PS1=$ ", "ENV=")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c := &console{t: t, pty: pty}
	prepare(c, shell)
	c.env = shell.Env
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(c.readTerminal)
	t.Cleanup(func() {
		_ = shell.Process.Kill() // the terminal hangs up, which ends the processes on it
		_ = shell.Wait()
		_ = pty.Close()
		reader.Wait()
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", c.seen.String())
		}
	})
	return c
}

// raceLog has the race detector of the programs on a terminal write to files, and reports at the end of
// the test what is there. A race of bubbletea is left out: at a panic it closes the reader of the
// terminal without waiting for it, and otherwise after half a second.
func raceLog(t *testing.T) (options string) {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		logs, _ := filepath.Glob(filepath.Join(dir, "race.*"))
		for _, log := range logs {
			text, err := os.ReadFile(log)
			if err != nil {
				t.Error(err)
			}
			for race := range strings.SplitSeq(string(text), "==================\n") {
				if strings.Contains(race, "DATA RACE") && !strings.Contains(race, "cancelreader.(*epollCancelReader).Close") {
					t.Errorf("%s: %s", log, race)
				}
			}
		}
	})
	return gorace + " exitcode=0 log_path=" + filepath.Join(dir, "race")
}

func (c *console) readTerminal() {
	buffer := make([]byte, 4096)
	for {
		n, err := c.pty.Read(buffer)
		c.mu.Lock()
		c.seen.Write(buffer[:n])
		if c.copy != nil {
			_, _ = c.copy.Write(buffer[:n])
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *console) enter(keys string) {
	c.t.Helper()
	if _, err := c.pty.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// expect waits until the terminal shows all texts, in any order, after those that were expected before.
// The terminal also shows what was typed, so no text must occur there.
func (c *console) expect(texts ...string) {
	c.t.Helper()
	missing := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if missing = c.advance(texts); missing == "" {
			return
		}
	}
	c.t.Fatalf("the terminal never showed %q", missing)
}

// advance returns a text that the terminal does not show yet, or goes on to what follows all of them.
func (c *console) advance(texts []string) (missing string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest, end := c.seen.String()[c.read:], 0
	for _, text := range texts {
		at := strings.Index(rest, text)
		if at < 0 {
			return text
		}
		end = max(end, at+len(text))
	}
	c.read += end
	return ""
}

func (c *console) showed(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(c.seen.String(), text)
}

// expectPrompt checks that the shell has the terminal again, and the exit code of its last command.
func (c *console) expectPrompt(code int) {
	c.t.Helper()
	c.enter("echo code=$?.\n")
	c.expect(fmt.Sprintf("code=%d.", code))
}

const ctrlC, ctrlZ = "\x03", "\x1a"

func TestJobControl(t *testing.T) {
	t.Run("a command reads the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'read line; echo got $line; exit 3'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expectPrompt(3)
	})
	t.Run("a script reads the terminal after the command", func(t *testing.T) {
		c := newConsole(t)
		c.enter("sh -c 'holdfast run lock -- sh -c \"read line; echo got \\$line\"; read line; echo and $line'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect("released")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-C ends the command and releases the lock", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-C while a command has the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'read line; echo got $line; exec sleep 100'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-C during --min-hold, after a command had the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run -v --min-hold 1h lock -- sh -c 'read line; echo got $line'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect(`keeping "lock"`)
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-Z and fg", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2)); kill -TERM %1; fg\n")
		c.expect("42")
		c.expect("released")
		c.expectPrompt(143)
	})
	t.Run("Ctrl-Z stops each run of a nest", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s a -- holdfast run --ttl 60s b -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		for range 2 {
			c.enter(ctrlZ)
			c.expect("suspended together with the command; \"b\"", "suspended together with the command; \"a\"")
			c.enter("echo $((40+2)); fg\n")
			c.expect("42")
		}
		c.enter(ctrlC)
		c.expect("released \"b\"", "released \"a\"")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-Z while a command has the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read a; echo got $a; read b; echo and $b'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("stopped for longer than the TTL", func(t *testing.T) {
		c := newConsole(t)
		fifo := t.TempDir() + "/fifo"
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		c.enter("holdfast run --ttl 8s lock -- sh -c 'trap \"echo w\"\"oke\" CONT; echo i''n; while :; do read line <" + fifo + "; done'\n")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("holdfast run lock -- echo $((40+2))\n")
		c.expect("42")
		c.enter("fg\n")
		c.expect("lost \"lock\"")
		c.expectPrompt(exitcode.Lost)
		if c.showed("woke") {
			t.Error("the command continued after the lease had expired")
		}
	})
	t.Run("a job in the background that wants the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read line; echo got $line' &\n")
		c.expect("suspended together with the command")
		// It says so before it stops; fg before that would continue what still runs.
		c.enter("until grep -q '^State:.T' /proc/$!/status; do sleep 0.1; done; echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect("released")
		c.expectPrompt(0)
	})
	t.Run("the window is closed while the job is stopped", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read a; echo got $a; read b'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2))\n") // the message comes before the stop
		c.expect("42")
		if err := c.pty.Close(); err != nil {
			t.Fatal(err)
		}
		next := exec.Command("holdfast", "run", "--wait", patience.String(), "lock", "--", "true")
		next.Env = c.env
		if out, err := next.CombinedOutput(); err != nil {
			t.Errorf("the lock was left behind: %v\n%s", err, out)
		}
	})
	t.Run("Ctrl-Z where there is no shell", func(t *testing.T) {
		c := openConsole(t, "holdfast", "run", "lock", "--", "sh", "-c", "echo in; read line; echo got $line; read line; echo and $line")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.enter("hello\n")
		c.expect("got hello") // now the command has the terminal
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released")
	})
	t.Run("Ctrl-Z in a script that no shell continues", func(t *testing.T) {
		c := openConsole(t, "sh", "-c", "holdfast run lock -- sh -c 'echo in; read line; echo got $line; read line; echo and $line'; echo over")
		c.expect("in\r\n")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released", "over")
	})
	t.Run("a nest reads the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s a -- holdfast run --ttl 60s b -- sh -c 'read line; echo got $line; read line; echo and $line'\n")
		c.expect(`acquired "b"`)
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command; \"a\"")
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("a nest reads the terminal where there is no shell", func(t *testing.T) {
		c := openConsole(t, "holdfast", "run", "a", "--", "holdfast", "run", "b", "--",
			"sh", "-c", "echo in; read line; echo got $line; read line; echo and $line")
		c.expect("in\r\n")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released \"a\"")
	})
	t.Run("a pipeline keeps its terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- echo to the pipe | { read a; read b </dev/tty; echo $a, $b; }\n")
		c.expect("released")
		c.enter("hello\n")
		c.expect("to the pipe, hello")
		c.expectPrompt(0)
	})
}
