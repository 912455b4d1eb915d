package main

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/completion"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown above the flags.
func (*completionCmd) Help() string {
	return `The script completes commands, flags, and the names of locks. The names come from the backend, if it answers within a second.

Examples:

    holdfast completion bash >/etc/bash_completion.d/holdfast
    holdfast completion zsh >"${fpath[1]}/_holdfast"
    holdfast completion fish >~/.config/fish/completions/holdfast.fish`
}

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	script, err := completion.Script(c.Shell)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(script)
	return err
}

const (
	// completeTimeout bounds the reading of names: the user waits for it.
	completeTimeout = time.Second
	// maxCompletions is how many names a shell can usefully show.
	maxCompletions = 300
)

// completionsOf returns what the last word can be. names reads the names of locks from a backend.
func completionsOf(words []string, names func(backend, prefix string) []string) completion.Completions {
	return completion.Of(newParser(&cli{}, io.Discard, io.Discard, func() {}).Model.Node, words, names)
}

// namesOf reads names of locks. An error means that there are none to complete.
func namesOf(backend, prefix string) (names []string) {
	if backend == "" {
		backend = strings.TrimSpace(os.Getenv(envBackend)) // as app.setBackend does
	}
	backend, err := backends.Choose(backend, true, os.Getenv(envToken) != "") // only a user at a terminal completes
	if err != nil || backends.IsMemory(backend) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	done := make(chan []string, 1) // a driver that is slow to notice the end of ctx ends with the process
	go func() { done <- listNames(ctx, backend, prefix) }()
	select {
	case names = <-done:
	case <-ctx.Done():
	}
	return names
}

func listNames(ctx context.Context, backend, prefix string) (names []string) {
	client, err := (&app{backend: backend}).openToLook(ctx)
	if err != nil {
		return nil
	}
	for record, err := range client.List(ctx, prefix) {
		if err != nil && record.Name == "" || len(names) == maxCompletions {
			break
		}
		names = append(names, record.Name)
	}
	stop, cancel := context.WithTimeout(ctx, idleShutdownTimeout)
	defer cancel()
	_ = client.Shutdown(stop) // nothing was acquired
	return names
}
