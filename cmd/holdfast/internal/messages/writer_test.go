package messages

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

// Messages that cannot be written block no caller. The number of dropped messages is written
// when writing works again.
func TestBlockedWriterDropsMessages(t *testing.T) {
	var g gate
	g.mu.Lock() // every write blocks
	a := NewWriter(&g)
	log := NewLog(a, false, false)
	const messages = 2000
	start := time.Now()
	for i := range messages {
		log.Infof("message %4d %s", i, strings.Repeat("x", 80))
	}
	a.Flush(10 * time.Millisecond)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%d messages took %v", messages, took)
	}
	g.mu.Unlock()
	a.Flush(patience)
	log.Infof("after")
	a.Flush(patience)

	lines := strings.Split(strings.TrimSpace(g.out.String()), "\n")
	written := len(lines) - 2
	for i, line := range lines[:written] {
		if !strings.HasPrefix(line, fmt.Sprintf("holdfast: message %4d ", i)) {
			t.Fatalf("line %d: %s", i, line)
		}
	}
	want := fmt.Sprintf("holdfast: %d messages were dropped here because standard error was blocked", messages-written)
	if lines[written] != want || lines[written+1] != "holdfast: after" {
		t.Errorf("%d lines, then:\n%s\nwant:\n%s\nholdfast: after", written, strings.Join(lines[written:], "\n"), want)
	}
	if size := written * 100; size < maxQueuedBytes/2 || size > 2*maxQueuedBytes {
		t.Errorf("%d bytes were kept, want about %d", size, maxQueuedBytes)
	}
}

// A message that is queued after others were dropped follows the note about them.
func TestMessageFollowsDroppedNote(t *testing.T) {
	var g gate
	g.mu.Lock()
	a := NewWriter(&g)
	line := func(s string) { fmt.Fprintln(a, s) }
	line("first")
	line(strings.Repeat("x", maxQueuedBytes))
	g.mu.Unlock()
	a.Flush(patience)
	line("last")
	a.Flush(patience)
	if got, want := g.out.String(), "first\nholdfast: 1 message was dropped here because standard error was blocked\nlast\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// gate is a writer that blocks while mu is locked.
type gate struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(p)
}
