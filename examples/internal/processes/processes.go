// Package processes runs an example in several processes, for its test.
package processes

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/locktest"
)

// patience is how long Await waits. A busy machine needs more than one lease.
const patience = time.Minute

// Build builds the program of the folder in which the test runs.
func Build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "example.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// Process is a running program.
type Process struct {
	*exec.Cmd
	t   *testing.T
	out locktest.Log
}

// Start starts a program, which is killed when the test ends.
func Start(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.CommandContext(t.Context(), program, args...), t: t}
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(p.Args, " "), p.Output())
		}
	})
	return p
}

// Kill ends the process as kill -9 does, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// Output returns what the process has printed.
func (p *Process) Output() string { return p.out.String() }

// Await waits until the process has printed a text n times.
func (p *Process) Await(text string, n int) {
	p.t.Helper()
	for end := time.Now().Add(patience); strings.Count(p.Output(), text) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%q was not printed %d times within %v", text, n, patience)
		}
	}
}

// First waits until one of two processes has printed a text. It returns that one, and the other.
func First(a, b *Process, text string) (first, other *Process) {
	a.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		switch {
		case strings.Contains(a.Output(), text):
			return a, b
		case strings.Contains(b.Output(), text):
			return b, a
		case time.Now().After(end):
			a.t.Fatalf("no process printed %q within %v", text, patience)
		}
	}
}
