package mongo

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// The queue of a lock is an array in its document, in order of arrival. Each waiter has
// the ID of its Locker and the time until which it stays without another request. The field
// reserve is for how long after it became free the lock is reserved for them, in milliseconds, so
// that a request for a lock without a queue has one short condition more.
//
// expiresAt is the moment at which the lock became free, by a release or by itself. Position n,
// counted from 0, may take the lock n turns after that moment, by the clock of the server. So no
// process coordinates the others, and a waiter that does not come costs the next one turn.
const (
	fieldQueue    = "queue"
	fieldReserve  = "reserve"
	fieldWaiter   = "w"
	fieldUntil    = "until"
	fieldWaiters  = "waiters"  // in replies: the length of the queue
	fieldPosition = "position" // in replies: this Locker's position, counted from 1
)

const (
	refQueue, refIndex, refLength, refPlace = "$$queue", "$$index", "$$length", "$$place"
	refOne                                  = "$$this"
)

// let evaluates an expression with one variable. A later variable refers to earlier ones only in
// an inner let.
func let(name string, value, in any) doc {
	return docOf("$let", doc{{Key: "vars", Value: docOf(name, value)}, {Key: "in", Value: in}})
}

// withQueue defines the variables that the other expressions of this file use: the queue, the
// caller's index in it or -1, its length, and the caller's place, which is the end of the queue
// for a caller that is not in it.
func withQueue(in any) doc {
	return let("queue", queueOf(),
		let("index", indexOf(refQueue, refMe),
			let("length", docOf("$size", refQueue),
				let("place", cond(expr("$lt", refIndex, 0), refLength, refIndex), in))))
}

func queueOf() doc { return expr("$ifNull", ref(fieldQueue), list{}) }

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
	return and(expr("$gt", refPlace, 0), expr("$gte", since, -driver.MaxTurn.Milliseconds()), expr("$lt", since, turn(refPlace)))
}

// queueAfterGrant is the queue without the caller, and without the waiters that were woken before
// the caller and did not come. Those behind them were not woken, and stay. The first argument is
// true if the lock was free; a lock that was taken from its holder woke nobody.
func queueAfterGrant(unheld any) doc {
	woken := cond(expr("$gt", refLength, longQueue), 1, driver.WokenWaiters)
	passed := cond(unheld, expr("$min", refPlace, woken), 0)
	rest := docOf("$filter", doc{
		field("input", expr("$slice", refQueue, passed, driver.MaxWaiters)),
		field("as", "this"), field("cond", expr("$ne", refOne+"."+fieldWaiter, refMe)),
	})
	return cond(expr("$gt", refLength, 0), queueFields(rest), doc{})
}

// queueAfterRefusal is the queue with the caller, if it waits. A caller that is in the queue
// already writes only if a third of its time is over.
func queueAfterRefusal() doc {
	mine := doc{field(fieldWaiter, refMe), field(fieldUntil, expr("$add", serverNow, refQueueFor))}
	joined := cond(expr("$lt", refIndex, 0),
		expr("$concatArrays", refQueue, list{mine}),
		docOf("$map", doc{
			field("input", refQueue), field("as", "this"),
			field("in", cond(expr("$eq", refOne+"."+fieldWaiter, refMe), mine, refOne)),
		}))
	alive := docOf("$filter", doc{
		field("input", joined), field("as", "this"), field("cond", expr("$gt", refOne+"."+fieldUntil, serverNow)),
	})
	left := expr("$subtract", expr("$arrayElemAt", refQueue+"."+fieldUntil, refIndex), serverNow)
	firstIsDead := expr("$lt", expr("$arrayElemAt", refQueue+"."+fieldUntil, 0), serverNow) // all that are dead go
	due := cond(expr("$lt", refIndex, 0),
		or(expr("$lt", refLength, driver.MaxWaiters), firstIsDead),
		expr("$lt", left, expr("$multiply", refQueueFor, 2.0/3)))
	return cond(and(expr("$gt", refQueueFor, 0), due), queueFields(alive), doc{})
}

// queueFields are the fields of a queue.
func queueFields(queue any) doc {
	return let("next", queue, doc{field(fieldQueue, "$$next"), field(fieldReserve, turn(docOf("$size", "$$next")))})
}

// leaveUpdate removes a waiter from queues.
func leaveUpdate(me string) list {
	rest := docOf("$filter", doc{
		field("input", ref(fieldQueue)), field("as", "this"), field("cond", expr("$ne", refOne+"."+fieldWaiter, me)),
	})
	return list{docOf("$set", docOf(fieldQueue, rest)), docOf("$set", docOf(fieldReserve, turn(docOf("$size", ref(fieldQueue)))))}
}

// nobodyWaits matches a document without waiters.
var nobodyWaits = field(fieldReserve, docOf("$in", list{0, nil}))

// queueProjection has the fields of a reply that say how long the queue is, and where a Locker is
// in it.
func queueProjection(me string) doc {
	waiters := expr("$ifNull", ref(fieldQueue+"."+fieldWaiter), list{})
	return doc{
		field(fieldWaiters, docOf("$size", waiters)),
		field(fieldPosition, expr("$add", expr("$indexOfArray", waiters, me), 1)),
	}
}

// A long queue gets no second hint, in case that the first waiter is dead: the processes would be
// woken twice for each handover. A dead first waiter then costs the others up to one poll interval.
const longQueue = 20

// wokenFields are the fields of a reply that show which waiters a release wakes.
var wokenFields = doc{field(fieldQueue, docOf("$slice", driver.WokenWaiters)), field(fieldWaiters, docOf("$size", queueOf()))}

// wokenProjection is the projection of the waiters that a release wakes. withWoken also has the
// record.
var (
	wokenProjection = mustMarshal(append(doc{field(fieldVersion, 1)}, wokenFields...))
	withWoken       = mustMarshal(append(append(doc{}, fieldsWithoutData...), wokenFields...))
)

// wokenWaiters lists the waiters that a release wakes, by their positions.
func wokenWaiters(document bson.Raw) (ids []string) {
	queue, _ := document.Lookup(fieldQueue).ArrayOK()
	waiters, _ := queue.Values()
	length, _ := document.Lookup(fieldWaiters).AsInt64OK()
	for i, waiter := range waiters {
		entry, _ := waiter.DocumentOK()
		id, ok := entry.Lookup(fieldWaiter).StringValueOK()
		if !ok || i >= driver.WokenWaiters || i > 0 && length > longQueue {
			break
		}
		ids = append(ids, id)
	}
	return ids
}
