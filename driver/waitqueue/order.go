package waitqueue

import "sync"

// Order makes calls one after another, in the order in which they were added, without a mutex held. So the last
// call to a waiter says what is so now, whichever goroutine reports it. The zero value is ready to use.
type Order[C any] struct {
	mu     sync.Mutex // never held during a call
	due    []C
	making bool // somebody makes the calls
}

// Add adds calls. A mutex of the caller that guards the reason for a call is still held, and Make follows without it.
func (o *Order[C]) Add(calls ...C) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = append(o.due, calls...)
}

// Make makes the calls that are due, unless somebody does already.
func (o *Order[C]) Make(call func(C)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.making {
		return
	}
	o.making = true
	for len(o.due) > 0 {
		due := o.due
		o.due = nil
		o.mu.Unlock() // a call may add others
		for _, c := range due {
			call(c)
		}
		o.mu.Lock()
	}
	o.making = false
}
