package holdfast

import (
	"context"
	"sync"
)

// tasks counts work under way. Unlike a sync.WaitGroup it can be closed to new
// work, and waiting for it can be bounded.
type tasks struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by wait, closed when n is 0
}

// start counts one more, unless closed.
func (t *tasks) start() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.n++
	return true
}

// end undoes one start.
func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// run runs fn on a goroutine of its own and counts it, unless closed.
func (t *tasks) run(fn func()) bool {
	if !t.start() {
		return false
	}
	go func() {
		defer t.end()
		fn()
	}()
	return true
}

// close refuses further starts. It does not wait.
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// wait returns when nothing is under way, or with the cause of ctx's end.
func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

// isClosed reports whether a channel that nobody sends to is closed. A select between it and
// the end of a context takes either if both are so.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
