//go:build unix

package endtoend

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// readmeProgram is a file with the program in the README, which opens the URL in HOLDFAST_BACKEND instead of its folder.
func readmeProgram(t *testing.T) string {
	t.Helper()
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
	code = "package main\n" + strings.Replace(code, folder, `os.Getenv("HOLDFAST_BACKEND")`, 1)
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Of two, one waits until the other has ended, and gets a greater token.
func readmeHandsOver(t *testing.T, start func() *program) {
	token := func(p *program) uint64 {
		n, err := strconv.ParseUint(p.await("mine, token "), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := start()
	last := token(first)
	second := start()
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
