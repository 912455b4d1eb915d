package locktest

import (
	"context"
	"sync"
	"testing"
)

// Readers checks from outside that a lock has any number of live readers or one live writer, and that their tokens
// rise: a writer's is greater than all before it, a reader's greater than those of all writers before it.
type Readers struct {
	tb      testing.TB
	mu      sync.Mutex
	readers map[uint64]context.Context // live when they were looked at last
	writer  context.Context            // the last one
	wrote   uint64                     // its token
	read    uint64                     // the greatest token of a reader
	// Most is how many readers were live at once, and Reads and Writes are how many holds there were.
	Most, Reads, Writes int
}

// NewReaders makes a check of one lock; a violation is an error of the test.
func NewReaders(tb testing.TB) *Readers {
	return &Readers{tb: tb, readers: map[uint64]context.Context{}}
}

// Read records a new reader by the context of its hold.
func (r *Readers) Read(ctx context.Context, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if r.writer != nil && r.writer.Err() == nil {
		r.tb.Errorf("a reader with token %d is live while the writer with token %d is", token, r.wrote)
	}
	if _, again := r.readers[token]; again || token <= r.wrote {
		r.tb.Errorf("a reader has token %d after a writer with %d, or that of another reader", token, r.wrote)
	}
	r.readers[token] = ctx //nolint:fatcontext // it is another holder's, not a nested one
	r.dropEnded()
	r.read, r.Reads, r.Most = max(r.read, token), r.Reads+1, max(r.Most, len(r.readers))
}

// Write records a new writer by the context of its hold.
func (r *Readers) Write(ctx context.Context, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if r.dropEnded(); len(r.readers) > 0 || r.writer != nil && r.writer.Err() == nil {
		r.tb.Errorf("a writer with token %d is live while %d readers are, or the writer with token %d", token, len(r.readers), r.wrote)
	}
	if token <= max(r.wrote, r.read) {
		r.tb.Errorf("a writer has token %d after a writer with %d and a reader with %d", token, r.wrote, r.read)
	}
	r.writer, r.wrote, r.Writes = ctx, token, r.Writes+1
}

// dropEnded forgets the readers whose holds have ended. mu is held.
func (r *Readers) dropEnded() {
	for token, ctx := range r.readers {
		if ctx.Err() != nil {
			delete(r.readers, token)
		}
	}
}
