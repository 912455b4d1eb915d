package lockstate

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiter is a position in the queue of a lock. See [driver.Queue].
type Waiter struct {
	ID    string        `json:"id"`               // a driver.WaiterID, or what stands for it in the store
	Until time.Duration `json:"untilNanoseconds"` // reading of Moment.Elapsed at which the position ends
	// Polls marks a waiter that no release wakes. It enters only a queue that has waiters without the mark: they
	// would be granted the lock each time before it asks. See [Lock.Emptied].
	Polls bool `json:"polls,omitempty"`
	// Shared marks a waiter that asks for the lock as a reader.
	Shared bool `json:"shared,omitempty"`
}

// AcquireInTurn is Acquire for a store with a queue. A free lock is granted only if it is the
// turn of the waiter, which is empty for a request without one. A store
// that calls it sets Expires to the present time when the lock is released.
func (k *Lock) AcquireInTurn(req driver.Request, holder, waiter string, now Moment) bool {
	return k.acquireInTurn(req, holder, Waiter{ID: waiter}, now)
}

// AcquirePolling is AcquireInTurn for a waiter that no release wakes.
func (k *Lock) AcquirePolling(req driver.Request, holder, waiter string, now Moment) bool {
	return k.acquireInTurn(req, holder, Waiter{ID: waiter, Polls: true}, now)
}

func (k *Lock) acquireInTurn(req driver.Request, holder string, who Waiter, now Moment) bool {
	who.Shared = req.Mode == driver.Shared
	unheld, token := !k.Held(now), k.Token
	free := unheld && (!k.enters(who) || k.reservedFor(who, now) <= 0) || k.takesReader(req, now) && !k.writerBefore(who, now)
	if !k.acquire(req, holder, free, now) {
		k.join(who, now.Elapsed, req.QueueFor)
		return false
	}
	if k.Token != token { // else the holder has repeated its request
		if unheld {
			k.passed(k.place(who))
		}
		woken := !who.Polls && k.Position(who.ID) > 0
		k.Leave(who.ID)
		k.Emptied = woken && !k.wakes()
	}
	return true
}

// Position is that of a waiter, counted from 1, and 0 if it has none.
func (k *Lock) Position(waiter string) int {
	return 1 + slices.IndexFunc(k.Queue, func(w Waiter) bool { return w.ID == waiter })
}

// waiter returns the waiter with an ID as it is in the queue. One without a position counts as one that asks for the
// lock alone.
func (k *Lock) waiter(id string) Waiter {
	if position := k.Position(id); position > 0 {
		return k.Queue[position-1]
	}
	return Waiter{ID: id}
}

// Turn is how long after the lock became free a waiter may take it. Readers that follow one another have one turn.
func (k *Lock) Turn(waiter string) time.Duration { return driver.Turn(k.place(k.waiter(waiter)) + 1) }

// before lists the waiters before this one. A waiter without a position is behind all.
func (k *Lock) before(who Waiter) []Waiter {
	if position := k.Position(who.ID); position > 0 {
		return k.Queue[:position-1]
	}
	return k.Queue
}

// place is how many waiters have their turns before this one. Readers that follow one another have that of the first.
func (k *Lock) place(who Waiter) int {
	n := len(k.before(who))
	for who.Shared && n > 0 && k.Queue[n-1].Shared {
		n--
	}
	return n
}

// writerBefore reports whether a waiter that asks for the lock alone is before this one, so that a reader does not
// overtake it. A waiter whose time is over keeps nobody waiting.
func (k *Lock) writerBefore(who Waiter, now Moment) bool {
	return slices.ContainsFunc(k.before(who), func(w Waiter) bool { return !w.Shared && w.Until > now.Elapsed })
}

// reservedFor is how long the lock is free, but not for this waiter.
func (k *Lock) reservedFor(who Waiter, now Moment) time.Duration {
	turn := driver.Turn(k.place(who) + 1)
	// Promise 10: a lock is reserved only around the moment when it became free. A clock that stands long before
	// it has stepped back, and reserves nothing. It can stand a little before it: a request that a server kept
	// waiting for the release of another may have the time of its own arrival.
	if k.Held(now) || now.Elapsed < k.Expires-driver.MaxTurn {
		return 0
	}
	return min(max(k.Expires+turn-now.Elapsed, 0), turn)
}

// enters reports whether the queue is for a waiter: one that polls is not in a queue of its like.
func (k *Lock) enters(who Waiter) bool {
	return !who.Polls || k.Emptied || k.wakes()
}

// wakes reports whether the queue has waiters that a release wakes.
func (k *Lock) wakes() bool {
	return slices.ContainsFunc(k.Queue, func(w Waiter) bool { return !w.Polls })
}

// join adds a waiter at the end of the queue, or refreshes its position when a third of its time is over. The
// queue then loses the waiters whose time is over.
func (k *Lock) join(who Waiter, now, lasts time.Duration) {
	position := k.Position(who.ID)
	due := len(k.Queue) < driver.MaxWaiters || k.Queue[0].Until <= now
	if position > 0 {
		present := k.Queue[position-1]
		due = present.Polls != who.Polls || present.Shared != who.Shared || present.Until-now < lasts*2/3
	}
	if lasts <= 0 || !due || !k.enters(who) {
		return
	}
	k.Emptied = false
	if who.Until = now + lasts; position > 0 {
		k.Queue[position-1] = who
	} else {
		k.Queue = append(k.Queue, who)
	}
	k.Queue = slices.DeleteFunc(k.Queue, func(w Waiter) bool { return w.Until <= now })
}

// passed removes the waiters before a place that had their turn and did not come: those that a release
// woke, and those that poll.
func (k *Lock) passed(place int) {
	left := driver.WokenOf(len(slices.DeleteFunc(slices.Clone(k.Queue), polls))) // to remove of those that were woken
	var rest []Waiter
	for i, w := range k.Queue {
		switch {
		case i < place && w.Polls && i < turns:
		case i < place && !w.Polls && left > 0:
			left--
		default:
			rest = append(rest, w)
		}
	}
	k.Queue = rest
}

// turns is how many waiters have a turn of their own before the reservation ends.
const turns = int(driver.MaxTurn / driver.TurnLength)

func polls(w Waiter) bool { return w.Polls }

// Leave removes a waiter from the queue.
func (k *Lock) Leave(waiter string) {
	k.Emptied = k.Emptied && k.Position(waiter) == 0
	k.Queue = slices.DeleteFunc(k.Queue, func(w Waiter) bool { return w.ID == waiter })
}

// Woken lists the waiters that a change wakes, in their order: of those whose time is not over and that do not poll,
// as many as [driver.WokenOf] says, and all readers if those come first. A shared lock that is held wakes readers
// only. So a driver asks after a release, also by one of several readers, and after a waiter has left the queue.
func (k *Lock) Woken(now Moment) []Waiter {
	all := slices.DeleteFunc(slices.Clone(k.Queue), func(w Waiter) bool { return w.Polls || w.Until <= now.Elapsed })
	readers := slices.IndexFunc(all, func(w Waiter) bool { return !w.Shared })
	if readers < 0 {
		readers = len(all)
	}
	switch {
	case k.Held(now) && (len(k.Readers) == 0 || k.full(now)):
		return nil
	case k.Held(now):
		return all[:readers]
	}
	return all[:max(readers, driver.WokenOf(len(all)))] // behind one reader, also the next, in case that the reader is dead
}

// Refusal is the error for a request, with or without a waiter, that was not granted the
// lock.
func (k *Lock) Refusal(name, waiter string, now Moment) *driver.HeldError {
	e := &driver.HeldError{Record: k.RecordFor(name, waiter, now)}
	if !k.Held(now) {
		// The time left can be zero. The request that was refused may itself have removed dead waiters
		// and moved the caller forward.
		e.Reserved = true
		e.Record = driver.Record{Name: name, State: driver.StateHeld, Remaining: k.reservedFor(k.waiter(waiter), now), RemainingKnown: true,
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
