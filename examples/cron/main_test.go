package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines collects what the machines print, and tells the test when there is enough.
type lines struct {
	mu   sync.Mutex
	jobs []string
	idle int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(string(p), "the job") {
		l.jobs = append(l.jobs, string(p))
	} else {
		l.idle++
	}
	return len(p), nil
}

func (l *lines) enough() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.jobs) >= 4 && l.idle >= 4
}

func TestOnceAcrossMachines(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	const every = 300 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var out lines
	var machines sync.WaitGroup
	for range 3 {
		machines.Go(func() {
			if err := schedule(ctx, &out, backend, every); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(30 * time.Second); !out.enough(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the job does not run")
			break
		}
	}
	cancel()
	machines.Wait()
	// One leads all the time, so all ran under one token.
	_, token, _ := strings.Cut(out.jobs[0], "under ")
	for _, job := range out.jobs {
		if !strings.HasSuffix(job, token) {
			t.Errorf("the job ran on two machines: %q", out.jobs)
			break
		}
	}
}
