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
	jobs    []job
	skipped int
}

// job is a line that the job has printed.
type job struct {
	at   time.Time
	line string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.Contains(string(p), "the job") {
		o.jobs = append(o.jobs, job{time.Now(), string(p)})
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
	for deadline := time.Now().Add(time.Minute); !out.complete(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the job has not run often enough within a minute")
			break
		}
	}
	cancel()
	machines.Wait()
	// The same machine leads all the time, so all jobs have the same token. Another may lead only if a
	// busy machine runs the job so late that the leader has been idle for its limit.
	const idleLimit = every + every/2
	for i := 1; i < len(out.jobs); i++ {
		_, token, _ := strings.Cut(out.jobs[i-1].line, "under ")
		if idle := out.jobs[i].at.Sub(out.jobs[i-1].at); !strings.HasSuffix(out.jobs[i].line, token) && idle < idleLimit {
			t.Errorf("the job ran on two machines, %v apart: %v", idle, out.jobs)
		}
	}
}
