package driver

import "time"

// The turns of a [Queue].
const (
	// TurnLength is how long a free lock is reserved for one waiter before the next may take it
	// too. It must exceed the time from a release until the request of the woken waiter arrives,
	// also on a busy machine, since a waiter that is slower loses its position.
	TurnLength = 200 * time.Millisecond
	// MaxTurn is how long a free lock is reserved at most.
	MaxTurn = time.Second
	// MaxWaiters is how many waiters a queue has at most. Further ones have no position and poll.
	MaxWaiters = 1000
	// WokenWaiters is how many waiters a release wakes at most: the first, and the second in case
	// that the first is dead. MongoDB wakes only the first of more than 20.
	WokenWaiters = 2
)

// Turn is how long after a lock became free the waiter at a position may take it. Positions
// count from 1.
func Turn(position int) time.Duration {
	return min(time.Duration(max(position-1, 0))*TurnLength, MaxTurn)
}

// The turns with which a [Queue] says that it wakes the waiter from now on.
const (
	// NothingMissed: it has done so since before the waiter's last refused request was sent.
	NothingMissed = time.Duration(-1)
	// MaybeMissed: the lock may have been released before.
	MaybeMissed = time.Duration(-2)
)
