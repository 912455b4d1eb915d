package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// instance is one copy of the service.
type instance struct {
	stop func()
	done chan error

	mu  sync.Mutex
	out bytes.Buffer
}

func (i *instance) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.out.Write(p)
}

func (i *instance) printed(text string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Contains(i.out.String(), text)
}

func start(t *testing.T, backend string) *instance {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	i := &instance{stop: cancel, done: make(chan error, 1)}
	go func() { i.done <- work(ctx, i, backend, 5*time.Millisecond) }()
	return i
}

func (i *instance) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !i.printed(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q was not printed within a minute", text)
		}
	}
}

func TestLeaderHandsOver(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	first := start(t, backend)
	first.await(t, "step 2 under token")
	second := start(t, backend)
	second.await(t, "holder seen")
	if second.printed("step") {
		t.Error("two instances work at the same time")
	}
	first.stop()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	second.await(t, "step 2 under token")
	second.stop()
	if err := <-second.done; err != nil {
		t.Error(err)
	}
}
