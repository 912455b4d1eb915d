package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestLeasesAndNotesAreHandedOver(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	names := []string{"north", "south", "west"}
	start := func() (*locktest.Log, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		out, done := &locktest.Log{}, make(chan error, 1)
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
		first.Await(t, fmt.Sprintf("acquired %q", name))
		first.Await(t, fmt.Sprintf("note 3 of %q", name))
	}
	second, endSecond := start()
	defer endSecond()
	for _, name := range names {
		second.Await(t, fmt.Sprintf("holder seen %q", name))
	}
	endFirst()
	for _, name := range names {
		first.Await(t, fmt.Sprintf("released %q", name))
		second.Await(t, fmt.Sprintf("acquired %q", name))
		second.Await(t, fmt.Sprintf("of %q", name))
	}
	if strings.Contains(second.String(), "note 1 of") {
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
