package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output collects the lines that the machines print.
type output struct {
	mu      sync.Mutex
	jobs    []string
	skipped int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.Contains(string(p), "the job") {
		o.jobs = append(o.jobs, string(p))
	} else {
		o.skipped++
	}
	return len(p), nil
}

func (o *output) complete() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.jobs) >= 4 && o.skipped >= 4
}

func TestOneMachineRunsTheJob(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	const every = 300 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var out output
	var machines sync.WaitGroup
	for range 3 {
		machines.Go(func() {
			if err := schedule(ctx, &out, backend, every); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(30 * time.Second); !out.complete(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the job has not run often enough within 30s")
			break
		}
	}
	cancel()
	machines.Wait()
	// The same machine leads all the time, so all jobs have the same token.
	_, token, _ := strings.Cut(out.jobs[0], "under ")
	for _, job := range out.jobs {
		if !strings.HasSuffix(job, token) {
			t.Errorf("the job ran on two machines: %q", out.jobs)
			break
		}
	}
}
