// Package worker counts and limits work under way.
package worker

import (
	"context"
	"sync"
)

// Group counts work under way. Unlike a sync.WaitGroup it can be closed to new work, and
// waiting for it can be bounded. The zero value is ready to use; all methods are safe for
// concurrent use.
type Group struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by Wait, closed when n is 0
}

// Start counts one more unit of work, unless the group is closed: then it returns false. After
// true the caller must call Done.
func (g *Group) Start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

// Done ends the work of one Start.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Go runs fn on a goroutine of its own and counts it, unless the group is closed: then it returns
// false.
func (g *Group) Go(fn func()) bool {
	if !g.Start() {
		return false
	}
	go func() {
		defer g.Done()
		fn()
	}()
	return true
}

// Close makes further starts fail. It does not wait.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Wait waits until nothing is under way, and then returns true. It returns false if ctx ends
// first.
func (g *Group) Wait(ctx context.Context) bool {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return true
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
