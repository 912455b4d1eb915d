package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// maxBacklog bounds the bytes that wait for a reader.
const maxBacklog = 64 << 10

// backlog writes messages to a terminal, a pipe or a file that may not take any for as
// long as it likes: Ctrl-S, a pager, a log reader that hangs. Write never waits. What
// does not fit is dropped, and how much that was is said as soon as writing works again.
type backlog struct {
	w io.Writer

	mu      sync.Mutex
	lines   [][]byte
	size    int // of lines and what is being written
	dropped int
	empty   chan struct{} // closed when all is written; nil if it is already
}

// Write takes one message.
func (b *backlog) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > 0 && b.size+len(line) > maxBacklog {
		b.dropped++
		return len(line), nil
	}
	b.noteDropped()
	b.add(append([]byte(nil), line...))
	return len(line), nil
}

func (b *backlog) add(line []byte) {
	b.lines = append(b.lines, line)
	b.size += len(line)
	if b.empty == nil {
		b.empty = make(chan struct{})
		go b.drain() // it ends when all is written; a write that never ends is left behind by the exit
	}
}

func (b *backlog) noteDropped() {
	what := "messages were"
	switch b.dropped {
	case 0:
		return
	case 1:
		what = "message was"
	}
	b.add(fmt.Appendf(nil, "holdfast: %d %s dropped here, since nothing could be written\n", b.dropped, what))
	b.dropped = 0
}

// drain writes until nothing is left.
func (b *backlog) drain() {
	defer writeInBackground()()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if len(b.lines) == 0 {
			b.noteDropped()
		}
		if len(b.lines) == 0 {
			close(b.empty)
			b.empty = nil
			return
		}
		line := b.lines[0]
		b.lines = b.lines[1:]
		b.mu.Unlock()
		_, _ = b.w.Write(line) // a failure cannot be reported anywhere
		b.mu.Lock()
		b.size -= len(line)
	}
}

// flush waits until all is written, but no longer than limit.
func (b *backlog) flush(limit time.Duration) {
	b.mu.Lock()
	empty := b.empty
	b.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-time.After(limit):
	}
}
