//go:build unix

package endtoend

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/azuritetest"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// backends are the URLs that one and the same program must run on.
func backends(t *testing.T) map[string]string {
	azure := azuritetest.Shared(t)
	return map[string]string{
		"mem":     "mem:", // each process has its own, so nothing is contended there
		"file":    "file:" + filepath.ToSlash(t.TempDir()),
		"mongodb": lockURL(t, mongotest.URI(t), "swapped"),
		"azblob":  azure.URL(azure.Fresh(t)),
	}
}

const shortestTTL = "15s" // that every backend allows

// The same binaries, the command and an example, run on every backend, with nothing
// changed but a URL: exit codes, hand-over on SIGTERM, take-over after a kill -9.
func TestOneProgramOnEveryBackend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "../../cmd/holdfast", "../../examples/worker", "../../examples/leases")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, url := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := func(args ...string) *program {
				p := newProgram(t, filepath.Join(dir, "holdfast"), args...)
				p.cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+url)
				return p
			}
			worker := func() *program { return newProgram(t, filepath.Join(dir, "worker"), "-backend", url).start() }
			leases := func() *program {
				return newProgram(t, filepath.Join(dir, "leases"), "-backend", url, "north", "south").start()
			}
			if name == "mem" { // no other process could see the lock
				refused := command("run", "once", "--", "true").start()
				refused.await("is the memory of one process")
				if code := refused.wait(); code != 2 {
					t.Errorf("the command on mem: ended with code %d", code)
				}
				for says, p := range map[string]*program{"step 2 under token ": worker(), `note 2 of "south"`: leases()} {
					p.await(says)
					p.signal(syscall.SIGTERM)
					if code := p.wait(); code != 0 {
						t.Errorf("what says %q ended with code %d", says, code)
					}
				}
				return
			}
			once := command("run", "once", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN; exit 7").start()
			once.await("token ")
			if code := once.wait(); code != 7 {
				t.Errorf("exit code %d, want the command's own", code)
			}
			t.Run("command", func(t *testing.T) { t.Parallel(); commandHandsOver(t, command) })
			t.Run("worker", func(t *testing.T) { t.Parallel(); workersTakeOver(t, worker) })
			t.Run("leases", func(t *testing.T) { t.Parallel(); leasesAreHandedOver(t, leases) })
		})
	}
}

func commandHandsOver(t *testing.T, command func(args ...string) *program) {
	run := func(flags ...string) *program {
		args := append(append([]string{"run", "--ttl", shortestTTL}, flags...), "job", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN; exec sleep 1000")
		return command(args...).start()
	}
	first := run()
	last := first.token()
	next := func(p *program, how string) {
		t.Helper()
		token := p.token()
		if token <= last {
			t.Errorf("%s: token %d after %d", how, token, last)
		}
		last = token
	}
	if code := run("--try").wait(); code != 75 {
		t.Errorf("--try while it is held: exit code %d, want 75", code)
	}
	second := run()
	second.await("waiting for")
	first.signal(syscall.SIGTERM)
	next(second, "after SIGTERM")
	if code := first.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("the first ended with %d", code)
	}
	third := run()
	third.await("waiting for")
	second.signal(syscall.SIGKILL)
	next(third, "after kill -9")
	third.signal(syscall.SIGTERM)
	third.wait()
}

func workersTakeOver(t *testing.T, worker func() *program) {
	leader := worker()
	leader.await("step 1 under token ")
	follower := worker()
	follower.await("holder seen")
	leader.signal(syscall.SIGKILL)
	follower.await("step 1 under token ")
	if strings.Contains(leader.said(), "lost") {
		t.Error("the leader lost its lock before it was killed")
	}
	follower.signal(syscall.SIGTERM)
	if code := follower.wait(); code != 0 {
		t.Errorf("the worker's exit code is %d", code)
	}
}

func leasesAreHandedOver(t *testing.T, leases func() *program) {
	first := leases()
	for _, name := range []string{"north", "south"} {
		first.await(fmt.Sprintf("note 2 of %q", name))
	}
	second := leases()
	second.await("holder seen")
	first.signal(syscall.SIGTERM)
	for _, name := range []string{"north", "south"} {
		first.await(fmt.Sprintf("released %q", name))
		second.await(fmt.Sprintf("of %q", name))
	}
	if strings.Contains(second.said(), "note 1 of") {
		t.Error("the predecessor's notes are gone")
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}

// program is a process whose output the test follows.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func newProgram(t *testing.T, path string, args ...string) *program {
	return &program{t: t, cmd: exec.Command(path, args...), ended: make(chan struct{})}
}

func (p *program) start() *program {
	p.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = write, write
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = write.Close() // the child has its own
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			p.mu.Lock()
			p.out.WriteString(s.Text() + "\n")
			p.mu.Unlock()
		}
	}()
	go func() {
		_ = p.cmd.Wait() // wait tells the exit code
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended
		<-p.ended
		_ = read.Close()
	})
	return p
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// patience bounds what a backend may take: an Azure lease can keep others waiting
// for a minute after its end.
const patience = 2 * time.Minute

// await waits for a text and returns what follows it on its line.
func (p *program) await(text string) string {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, after, found := strings.Cut(p.said(), text); found {
			line, _, _ := strings.Cut(after, "\n")
			return line
		}
	}
	p.t.Fatalf("%q was not said, but:\n%s", text, p.said())
	return ""
}

func (p *program) token() uint64 {
	p.t.Helper()
	n, err := strconv.ParseUint(p.await("\ntoken "), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("it did not end; it said:\n%s", p.said())
		return -1
	}
}
