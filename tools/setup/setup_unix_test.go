//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A package manager is interrupted and not killed: it can finish the step it is in.
func TestInterruptedCommandCanFinish(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // the log is written below the working directory
	begun, ended := filepath.Join(dir, "begun"), filepath.Join(dir, "ended")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		script := "trap 'echo ended >" + ended + "; exit 3' INT; echo begun >" + begun + "; while :; do sleep 0.05; done"
		done <- realSystem(t.Context()).run(ctx, []string{"sh", "-c", script})
	}()
	for {
		if content, err := os.ReadFile(begun); err == nil && len(content) > 0 {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("the command ended by itself: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("an interrupted command returned no error")
	}
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("the command could not finish: %v", err)
	}
}

// The compiler is the one that Go uses, with its wrapper and flags, from the environment or from "go env -w".
func TestCompilerIsTheOneOfGo(t *testing.T) {
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "env")
	met := needs()[1].met
	for name, c := range map[string]struct {
		environment, setting string
		want                 bool
	}{
		"default":                       {"", "", true},
		"with a wrapper":                {wrapper + " cc", "", true},
		"with a flag":                   {"cc -O2", "", true},
		"wrapper without cc":            {wrapper + " /does/not/exist", "", false},
		"setting with a wrapper":        {"", wrapper + " cc -O2", true},
		"setting of a missing compiler": {"", "/does/not/exist", false},
		"environment wins":              {"cc", "/does/not/exist", true},
		"environment wins, missing":     {"/does/not/exist", "cc", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CC", c.environment)
			t.Setenv("GOENV", settings)
			if err := os.WriteFile(settings, []byte("CC="+c.setting+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := met(realSystem(t.Context())); got != c.want {
				t.Errorf("found: %v, want %v", got, c.want)
			}
		})
	}
}
