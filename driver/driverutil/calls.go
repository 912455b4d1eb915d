package driverutil

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Calls are the calls and goroutines of a Locker that are under way, for which its Close waits. NewCalls makes them.
type Calls struct {
	ctx       context.Context
	interrupt context.CancelFunc

	mu      sync.Mutex
	running int
	ended   chan struct{} // made by Shut; closed when none is running
}

// NewCalls returns Calls of which none is under way.
func NewCalls() *Calls {
	c := &Calls{}
	c.ctx, c.interrupt = context.WithCancel(context.Background())
	return c
}

// Context is that of the goroutines. It ends with Interrupt.
func (c *Calls) Context() context.Context { return c.ctx }

// Interrupt ends the contexts of the calls and goroutines that are under way.
func (c *Calls) Interrupt() { c.interrupt() }

// Run runs a call with a time limit, unless Shut was called, the arguments are invalid, or ctx has ended.
func (c *Calls) Run(ctx context.Context, limit time.Duration, invalid error, call func(context.Context) error) error {
	if !c.Begin() {
		return driver.ErrClosed
	}
	defer c.End()
	if invalid != nil {
		return invalid
	}
	if err := ctx.Err(); err != nil {
		return Unsent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // the Locker's lifetime applies besides the caller's context
	return call(ctx)
}

// Begin begins a call, whose caller calls End when it is over. It returns false after Shut.
func (c *Calls) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return false
	}
	c.running++
	return true
}

// End ends a call.
func (c *Calls) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.closeIdle()
}

// Go runs a function in a goroutine, which counts as a call. It returns false after Shut.
func (c *Calls) Go(run func()) bool {
	if !c.Begin() {
		return false
	}
	go func() {
		defer c.End()
		run()
	}()
	return true
}

// Shut refuses further calls; first is true the first time. The channel is closed when those under way have ended.
func (c *Calls) Shut() (ended <-chan struct{}, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first = c.ended == nil; first {
		c.ended = make(chan struct{})
		c.closeIdle()
	}
	return c.ended, first
}

// Closed reports whether Shut was called.
func (c *Calls) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// Running returns how many calls are under way.
func (c *Calls) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// closeIdle closes the channel if the last call has ended; mu is held.
func (c *Calls) closeIdle() {
	if c.ended != nil && c.running == 0 {
		close(c.ended)
	}
}
