package messages

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// maxQueuedBytes bounds the messages that wait to be written.
const maxQueuedBytes = 64 << 10

// Writer writes messages to a terminal, a pipe or a file that may block forever:
// after Ctrl-S, in a pager, or if a log reader hangs. Write never waits. Messages that
// do not fit into the queue are dropped; their number is written as soon as writing
// works again.
type Writer struct {
	w io.Writer

	mu      sync.Mutex
	queue   [][]byte
	size    int           // bytes in the queue and in the current write
	dropped int           // messages since the last note about dropped ones
	drained chan struct{} // closed when everything is written; nil if nothing is queued
}

// NewWriter makes a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write queues one message.
func (a *Writer) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size > 0 && a.size+len(line) > maxQueuedBytes {
		a.dropped++
		return len(line), nil
	}
	a.addDroppedNote()
	a.add(append([]byte(nil), line...))
	return len(line), nil
}

func (a *Writer) add(line []byte) {
	a.queue = append(a.queue, line)
	a.size += len(line)
	if a.drained == nil {
		a.drained = make(chan struct{})
		go a.drain() // ends when the queue is empty; a write that blocks forever ends with the process
	}
}

func (a *Writer) addDroppedNote() {
	what := "messages were"
	switch a.dropped {
	case 0:
		return
	case 1:
		what = "message was"
	}
	a.add(fmt.Appendf(nil, "holdfast: %d %s dropped here because standard error was blocked\n", a.dropped, what))
	a.dropped = 0
}

// drain writes until the queue is empty.
func (a *Writer) drain() {
	defer blockSIGTTOU()()
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if len(a.queue) == 0 {
			a.addDroppedNote()
		}
		if len(a.queue) == 0 {
			close(a.drained)
			a.drained = nil
			return
		}
		line := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		_, _ = a.w.Write(line) // there is nowhere to report a failure
		a.mu.Lock()
		a.size -= len(line)
	}
}

// Flush waits until everything is written, but no longer than limit.
func (a *Writer) Flush(limit time.Duration) {
	a.mu.Lock()
	drained := a.drained
	a.mu.Unlock()
	if drained == nil {
		return
	}
	select {
	case <-drained:
	case <-time.After(limit):
	}
}
