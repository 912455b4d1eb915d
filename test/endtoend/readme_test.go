//go:build unix

package endtoend

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The program in the README can be pasted and run: of two, one waits until the other has ended, and gets a greater token.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```go\npackage main\n")
	code, _, found := strings.Cut(code, "```")
	const folder = `"file:/tmp/holdfast-demo"`
	if !found || strings.Count(code, folder) != 1 {
		t.Fatalf("README.md has no program that opens %s", folder)
	}
	dir := t.TempDir()
	code = "package main\n" + strings.Replace(code, folder, strconv.Quote("file:"+filepath.Join(dir, "locks")), 1)
	source, path := filepath.Join(dir, "main.go"), filepath.Join(dir, "demo")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	token := func(p *program) uint64 {
		n, err := strconv.ParseUint(p.await("mine, token "), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := newProgram(t, path).start()
	last := token(first)
	second := newProgram(t, path).start()
	second.await("waiting for")
	if strings.Contains(second.output.String(), "mine") {
		t.Errorf("two have the lock; the second writes:\n%s", &second.output)
	}
	for _, p := range []*program{first, second} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("the program ended with code %d:\n%s", code, &p.output)
		}
		if p == first {
			if next := token(second); next <= last {
				t.Errorf("token %d after %d", next, last)
			}
		}
	}
}
