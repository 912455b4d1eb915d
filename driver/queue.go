package driver

import "time"

// The turns of a [Queue].
const (
	// TurnLength is the [Info].Turn of the backends whose rules are those of package lockstate: how long a free
	// lock is reserved for one waiter before the next may take it
	// too. It must exceed the time from a release until the request of the woken waiter arrives,
	// also on a busy machine, since a waiter that is slower loses its position.
	TurnLength = 200 * time.Millisecond
	// MaxTurns is for how many turns a free lock is reserved at most.
	MaxTurns = 5
	// MaxTurn is how long that is with TurnLength.
	MaxTurn = MaxTurns * TurnLength
	// MaxWaiters is how many waiters a queue has at most. Further ones have no position and poll.
	MaxWaiters = 1000
	// WokenWaiters is how many waiters a release wakes at most: the first, and the second in case
	// that the first is dead.
	WokenWaiters = 2
	// LongQueue is the length of a queue beyond which a release wakes only the first waiter. Otherwise each process
	// would be woken twice for each grant. A dead first waiter then costs the others up to one poll interval.
	LongQueue = 20
)

// WokenOf is how many waiters a release wakes in a queue of this length.
func WokenOf(waiters int) int {
	if waiters > LongQueue {
		return 1
	}
	return min(waiters, WokenWaiters)
}

// Turn is TurnAt with TurnLength.
func Turn(position int) time.Duration { return TurnAt(TurnLength, position) }

// TurnAt is how long after a lock became free the waiter at a position may take it, if a turn has this length.
// Positions count from 1.
func TurnAt(turn time.Duration, position int) time.Duration {
	return time.Duration(min(max(position-1, 0), MaxTurns)) * turn
}
