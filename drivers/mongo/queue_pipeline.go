package mongo

import "github.com/holdfast-go/holdfast/driver"

// The queue of a lock is an array in its document, in order of arrival. Each waiter has
// the ID of its Locker and the time until which it stays without another request. The field
// reserve is for how long after it became free the lock is reserved for them, in milliseconds, so
// that a request for a lock without a queue has one short condition more.
//
// A waiter that no hint wakes polls, and is marked. It enters only a queue with waiters that hints wake: they
// would be granted the lock each time before it asks. A queue that the holder was the last of them to leave
// counts as one, since two that hand the lock to each other empty it each time. A queue of marked waiters alone
// reserves nothing, and their positions end by themselves.
//
// expiresAt is the moment at which the lock became free, by a release or by itself. Position n
// may take the lock n-1 turns ([driver.TurnLength]) after that moment, by the clock of the server. So
// no process coordinates the others, and a waiter that does not come costs the next one turn.

const (
	refQueue, refIndex, refLength, refPlace = "$$queue", "$$index", "$$length", "$$place"
	refOne, refBefore                       = "$$this", "$$before"
)

// withQueue defines the variables that the other expressions of this file use: the queue, the
// caller's index in it or -1, its length, and the caller's place, which is the end of the queue
// for a caller that is not in it. Readers that follow one another have one place, that of the first, and a
// reader knows the waiters before it.
func withQueue(shared bool, in any) doc {
	place := let("place", cond(expr("$lt", refIndex, 0), refLength, refIndex), in)
	if shared {
		// The first of the readers just before the caller comes after the last waiter that asks for the lock alone.
		alone := mapped(expr("$reverseArray", refBefore), not(refOne+"."+fieldShared))
		last := expr("$indexOfArray", alone, true)
		place = let("before", cond(expr("$lt", refIndex, 0), refQueue, expr("$slice", refQueue, refIndex)),
			let("last", last, let("place", cond(expr("$lt", "$$last", 0), 0, expr("$subtract", docOf("$size", refBefore), "$$last")), in)))
	}
	return let("queue", queueOf(), let("index", indexOf(refQueue, refMe), let("length", docOf("$size", refQueue), place)))
}

func queueOf() doc { return expr("$ifNull", ref(fieldQueue), list{}) }

// polls is true for a waiter that no hint wakes.
const polls = refOne + "." + fieldPolls

func indexOf(queue string, waiter any) doc {
	return expr("$indexOfArray", queue+"."+fieldWaiter, waiter)
}

// turn is how long after it became free the lock is reserved for the waiters before a place.
func turn(place any) doc {
	return expr("$min", expr("$multiply", place, driver.TurnLength.Milliseconds()), driver.MaxTurn.Milliseconds())
}

// reserved is true for a lock that is free, but not yet for the caller.
func reserved() doc {
	// Promise 10: a lock is reserved only around the moment when it became free. A clock that
	// stands long before it has stepped back, and reserves nothing. It can stand a little before
	// it: a command that waited for the release of another one keeps the time of its own arrival.
	since := expr("$subtract", serverNow, ref(fieldExpiresAt))
	return and(enters(), expr("$gt", refPlace, 0), expr("$gte", since, -driver.MaxTurn.Milliseconds()), expr("$lt", since, turn(refPlace)))
}

// enters is false for a caller that polls where nobody waits but such callers. The queue is not for it.
func enters() doc { return or(not(refPolls), ref(fieldReserve)) }

// queueAfterGrant is the queue without the caller, and without the waiters that had their turn before
// the caller and did not come: those that were woken, and those that poll. The others were not woken, and
// stay. The first argument is true if the lock was free; a lock that was taken from its holder woke nobody.
func queueAfterGrant(unheld any) doc {
	ahead := cond(unheld, expr("$slice", refQueue, refPlace), list{})
	passed := expr("$concatArrays",
		expr("$slice", filter("$$ahead", not(polls)), howManyWoken(filter(refQueue, not(polls)))),
		filter(expr("$slice", "$$ahead", turns), polls))
	rest := let("ahead", ahead, let("passed", passed, filter(refQueue,
		and(expr("$ne", refOne+"."+fieldWaiter, refMe), not(expr("$in", refOne+"."+fieldWaiter, "$$passed."+fieldWaiter))))))
	// Where the caller was the last that a hint woke, the queue is emptied.
	wakesMe := and(expr("$gte", refIndex, 0), not(refPolls))
	reserve := let("reserve", reservation("$$next"), cond(and(wakesMe, expr("$eq", "$$reserve", 0)), emptied, "$$reserve"))
	fields := let("next", rest, doc{field(fieldQueue, "$$next"), field(fieldReserve, reserve)})
	return cond(or(expr("$gt", refLength, 0), ref(fieldReserve)), fields, doc{})
}

// turns is how many waiters have a turn of their own before the reservation ends.
const turns = int(driver.MaxTurn / driver.TurnLength)

// queueAfterRefusal is the queue with the caller, if it waits. A caller that is in the queue
// already writes only if a third of its time is over, or if its marks change.
func queueAfterRefusal(shared bool) doc {
	mine := doc{field(fieldWaiter, refMe), field(fieldUntil, expr("$add", serverNow, refQueueFor)), field(fieldPolls, refPolls)}
	otherMode := any("$$present." + fieldShared)
	if shared {
		mine, otherMode = append(mine, field(fieldShared, true)), not(otherMode)
	}
	joined := cond(expr("$lt", refIndex, 0),
		expr("$concatArrays", refQueue, list{mine}),
		mapped(refQueue, cond(expr("$eq", refOne+"."+fieldWaiter, refMe), mine, refOne)))
	firstIsDead := expr("$lte", expr("$arrayElemAt", refQueue+"."+fieldUntil, 0), serverNow) // all that are dead go
	left := expr("$subtract", "$$present."+fieldUntil, serverNow)
	otherMark := expr("$ne", not("$$present."+fieldPolls), not(refPolls))
	due := cond(expr("$lt", refIndex, 0),
		or(expr("$lt", refLength, driver.MaxWaiters), firstIsDead),
		let("present", expr("$arrayElemAt", refQueue, refIndex),
			or(otherMode, otherMark, expr("$lt", left, expr("$multiply", refQueueFor, 2.0/3)))))
	return cond(and(expr("$gt", refQueueFor, 0), enters(), due), queueFields(filter(joined, alive)), doc{})
}

// alive is true for a waiter whose time is not over.
var alive = expr("$gt", refOne+"."+fieldUntil, serverNow)

// queueFields are the fields of a queue.
func queueFields(queue any) doc {
	return let("next", queue, doc{field(fieldQueue, "$$next"), field(fieldReserve, reservation("$$next"))})
}

// reservation is for how long a queue reserves the lock.
func reservation(queue string) doc {
	length := docOf("$size", queue)
	return cond(expr("$lt", docOf("$size", queue+"."+fieldPolls), length), turn(length), 0)
}

// leaveUpdate removes a waiter from queues.
func leaveUpdate(me string) list {
	rest := filter(ref(fieldQueue), expr("$ne", refOne+"."+fieldWaiter, me))
	return list{docOf("$set", docOf(fieldQueue, rest)), docOf("$set", docOf(fieldReserve, reservation(ref(fieldQueue))))}
}

// howManyWoken is how many of the waiters that hints can wake a release wakes.
func howManyWoken(waiters any) doc {
	return cond(expr("$gt", docOf("$size", waiters), driver.LongQueue), 1, driver.WokenWaiters)
}
