package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/locktest"
)

// instance is one copy of the service.
type instance struct {
	stop func()
	done chan error

	locktest.Log // what it prints
}

func start(t *testing.T, backend string) *instance {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	i := &instance{stop: cancel, done: make(chan error, 1)}
	go func() { i.done <- work(ctx, i, backend, 5*time.Millisecond) }()
	return i
}

func TestLeaderHandsOver(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	first := start(t, backend)
	first.Await(t, "step 2 under token")
	second := start(t, backend)
	second.Await(t, "holder seen")
	if strings.Contains(second.String(), "step") {
		t.Error("two instances work at the same time")
	}
	first.stop()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	second.Await(t, "step 2 under token")
	second.stop()
	if err := <-second.done; err != nil {
		t.Error(err)
	}
}
