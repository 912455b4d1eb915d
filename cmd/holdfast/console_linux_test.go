package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// console is an interactive shell on a terminal of its own.
type console struct {
	t   *testing.T
	pty *os.File
	env []string
	sid string // of its session

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
	c.sid = strconv.Itoa(shell.Process.Pid)
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
	return gorace + ` exitcode=0 log_path="` + filepath.Join(dir, "race") + `"` // a comma of the test's name would end the option
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

// expectStopped waits until each holdfast on the terminal has stopped. It says so before it stops; fg before that would continue what
// still runs.
func (c *console) expectStopped() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if !c.holdfastRuns() {
			return
		}
	}
	c.t.Fatal("holdfast did not stop")
}

func (c *console) holdfastRuns() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, _ := os.ReadFile(path) // PID (NAME) STATE PARENT GROUP SESSION …; none if the process has ended
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if strings.HasSuffix(name, "(holdfast") && len(fields) > 3 && fields[3] == c.sid && fields[0] != "T" {
			return true
		}
	}
	return false
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
