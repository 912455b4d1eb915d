package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Messages that cannot be written delay nobody. What is dropped is counted, and that is
// said when writing works again.
func TestBacklog(t *testing.T) {
	var g gate
	g.mu.Lock() // nothing can be written
	b := &backlog{w: &g}
	say := newReporter(b, false, false)
	const messages = 2000
	start := time.Now()
	for i := range messages {
		say.info("message %4d %s", i, strings.Repeat("x", 80))
	}
	b.flush(10 * time.Millisecond)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%d messages took %v", messages, took)
	}
	g.mu.Unlock()
	b.flush(patience)
	say.info("after")
	b.flush(patience)

	lines := strings.Split(strings.TrimSpace(g.out.String()), "\n")
	written := len(lines) - 2
	for i, line := range lines[:written] {
		if !strings.HasPrefix(line, fmt.Sprintf("holdfast: message %4d ", i)) {
			t.Fatalf("line %d: %s", i, line)
		}
	}
	want := fmt.Sprintf("holdfast: %d messages were dropped here, since nothing could be written", messages-written)
	if lines[written] != want || lines[written+1] != "holdfast: after" {
		t.Errorf("%d lines, then:\n%s\nwant:\n%s\nholdfast: after", written, strings.Join(lines[written:], "\n"), want)
	}
	if size := written * 100; size < maxBacklog/2 || size > 2*maxBacklog {
		t.Errorf("%d bytes were kept, want about %d", size, maxBacklog)
	}
}

// A message that comes when there is room again follows the number of those dropped.
func TestBacklogKeepsOrder(t *testing.T) {
	var g gate
	g.mu.Lock()
	b := &backlog{w: &g}
	line := func(s string) { fmt.Fprintln(b, s) }
	line("first")
	line(strings.Repeat("x", maxBacklog))
	g.mu.Unlock()
	b.flush(patience)
	line("last")
	b.flush(patience)
	if got, want := g.out.String(), "first\nholdfast: 1 message was dropped here, since nothing could be written\nlast\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// gate is a writer that takes nothing while it is shut.
type gate struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(p)
}
