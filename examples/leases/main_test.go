package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is what a running program has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		printed := o.buf.String()
		o.mu.Unlock()
		if strings.Contains(printed, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q was not printed within a minute, but:\n%s", text, printed)
		}
	}
}

func TestLeasesAndNotesAreHandedOver(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	names := []string{"north", "south", "west"}
	start := func() (*output, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		out, done := &output{}, make(chan error, 1)
		go func() { done <- manage(ctx, out, backend, 10*time.Millisecond, names) }()
		return out, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	first, endFirst := start()
	for _, name := range names {
		first.await(t, fmt.Sprintf("acquired %q", name))
		first.await(t, fmt.Sprintf("note 3 of %q", name))
	}
	second, endSecond := start()
	defer endSecond()
	for _, name := range names {
		second.await(t, fmt.Sprintf("holder seen %q", name))
	}
	endFirst()
	for _, name := range names {
		first.await(t, fmt.Sprintf("released %q", name))
		second.await(t, fmt.Sprintf("acquired %q", name))
		second.await(t, fmt.Sprintf("of %q", name))
	}
	second.mu.Lock()
	defer second.mu.Unlock()
	if strings.Contains(second.buf.String(), "note 1 of") {
		t.Error("the notes of the first program are gone")
	}
}

// Without a name the program prints its usage and fails.
func TestNamesAreRequired(t *testing.T) {
	if os.Getenv("LEASES_MAIN") != "" {
		os.Args = []string{"leases", "-backend", "mem:"}
		main()
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestNamesAreRequired$")
	program.Env = append(os.Environ(), "LEASES_MAIN=1")
	printed, err := program.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(printed), "usage: leases [-backend URL] NAME...") {
		t.Errorf("%v:\n%s", err, printed)
	}
}
