package lockstate

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiter is a position in the queue of a lock. See [driver.Queue].
type Waiter struct {
	ID    string        `json:"id"`               // of the Locker that waits
	Until time.Duration `json:"untilNanoseconds"` // reading of Moment.Elapsed at which the position ends
}

// AcquireInTurn is Acquire for a store with a queue. A free lock is granted only if it is the
// turn of the waiter, which may be empty for a request of a Locker that does not wait. A store
// that calls it sets Expires to the present time when the lock is released.
func (k *Lock) AcquireInTurn(req driver.Request, holder, from, waiter string, now Moment) bool {
	position, free := k.Position(waiter), !k.Held(now)
	if k.Reserved(waiter, now) || !k.Acquire(req, holder, from, now) {
		if req.QueueFor > 0 {
			k.join(waiter, now.Elapsed, req.QueueFor)
		}
		return false
	}
	if free {
		k.passed(position)
	}
	k.Leave(waiter)
	return true
}

// Position is that of a waiter, counted from 1, and 0 if it has none.
func (k *Lock) Position(waiter string) int {
	return 1 + slices.IndexFunc(k.Queue, func(w Waiter) bool { return w.ID == waiter })
}

// Reserved reports whether the lock is free, but not yet for this waiter.
func (k *Lock) Reserved(waiter string, now Moment) bool {
	return k.reservedFor(waiter, now) > 0
}

// reservedFor is how long the lock is free, but not for this waiter.
func (k *Lock) reservedFor(waiter string, now Moment) time.Duration {
	position := k.Position(waiter)
	if position == 0 {
		position = len(k.Queue) + 1
	}
	// Promise 10: a lock is reserved only during MaxTurn after it became free. After a step of
	// the clock in either direction it is not reserved at all.
	if k.Held(now) || now.Elapsed < k.Expires {
		return 0
	}
	return max(k.Expires+driver.Turn(position)-now.Elapsed, 0)
}

// join adds a waiter at the end of the queue, or refreshes its position.
func (k *Lock) join(waiter string, now, lasts time.Duration) {
	k.Queue = slices.DeleteFunc(k.Queue, func(w Waiter) bool { return w.Until <= now && w.ID != waiter })
	if n := k.Position(waiter); n > 0 {
		k.Queue[n-1].Until = now + lasts
	} else if len(k.Queue) < driver.MaxWaiters {
		k.Queue = append(k.Queue, Waiter{waiter, now + lasts})
	}
}

// passed removes the waiters that were woken before the one at a position, and did not come.
func (k *Lock) passed(position int) {
	before := len(k.Queue)
	if position > 0 {
		before = position - 1
	}
	k.Queue = slices.Delete(k.Queue, 0, min(before, driver.WokenWaiters))
}

// Leave removes a waiter from the queue.
func (k *Lock) Leave(waiter string) {
	k.Queue = slices.DeleteFunc(k.Queue, func(w Waiter) bool { return w.ID == waiter })
}

// Woken lists the waiters that a release wakes, in their order.
func (k *Lock) Woken() []Waiter { return k.Queue[:min(len(k.Queue), driver.WokenWaiters)] }

// Refusal is the error for a waiter, or for a Locker that does not wait, that was not granted the
// lock.
func (k *Lock) Refusal(name, waiter string, now Moment) *driver.HeldError {
	e := &driver.HeldError{Record: k.RecordFor(name, waiter, now)}
	if !k.Held(now) {
		// Nothing may be left of the reservation: the request that was refused may itself have removed
		// waiters that were dead, and moved the caller forward.
		e.Reserved = true
		e.Record = driver.Record{Name: name, State: driver.StateHeld, Remaining: k.reservedFor(waiter, now), RemainingKnown: true,
			Waiters: e.Record.Waiters, Position: e.Record.Position}
	}
	return e
}

// RecordFor is Record with the queue as a waiter sees it.
func (k *Lock) RecordFor(name, waiter string, now Moment) driver.Record {
	r := k.Record(name, now)
	r.Waiters, r.Position = len(k.Queue), k.Position(waiter)
	return r
}
