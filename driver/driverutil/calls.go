package driverutil

import "sync"

// Calls counts the calls and goroutines of a Locker that are under way, for which its Close waits. The zero value is ready to use.
type Calls struct {
	mu      sync.Mutex
	running int
	ended   chan struct{} // made by Shut; closed when none is running
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
