package mongo

import (
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// What commands ask of the documents: filters, which say which documents a command is about, and projections, which say what its
// reply has.

// validRecord matches a document whose deciding fields are valid.
func validRecord(name any, more ...bson.E) doc {
	return append(doc{
		field(fieldName, name),
		field(fieldVersion, schemaVersion),
		field(fieldExpiresAt, docOf("$type", "date")),
		field(fieldToken, doc{{Key: "$type", Value: "long"}, {Key: "$lt", Value: lastToken}}),
	}, more...)
}

// heldBy matches the document while a lease holds it, expired or not.
func heldBy(l driver.Lease, more ...bson.E) doc {
	if l.Mode == driver.Shared {
		return append(readBy(l.Name, field(readerID, docOf("$eq", l.ID.Reveal()))), more...)
	}
	return validRecord(l.Name, append([]bson.E{field(fieldLeaseID, docOf("$eq", l.ID.Reveal()))}, more...)...)
}

// sameData is the condition that the data have a revision.
func sameData(at driver.DataRevision) bson.E {
	return field("$and", list{docOf(fieldToken, int64(at.Token)), docOf(fieldWrites, int64(at.Writes))})
}

// unbroken also matches a document without the field.
var unbroken = field(fieldBroken, docOf("$in", list{false, nil}))

// sharedRecord matches a document whose deciding fields are valid, and whose latest grant was to a reader.
func sharedRecord(name any, more ...bson.E) doc {
	filter := validRecord(name, more...)
	filter[1] = field(fieldVersion, sharedVersion)
	return filter
}

// readBy matches the document while a reader that has all of these holds it, expired or not.
func readBy(name any, reader ...bson.E) doc {
	return sharedRecord(name, field(fieldLeaseID, sharedHolder), field(fieldReaders, docOf("$elemMatch", doc(reader))))
}

// readerUnbroken is unbroken for a reader.
var readerUnbroken = field(readerBroken, docOf("$ne", true))

// nobodyWaits matches a document without waiters that hints wake.
var nobodyWaits = field(fieldReserve, docOf("$in", list{0, nil, emptied}))

// leaving matches the document of a queue that a waiter is in.
func leaving(name any, me string) doc {
	return doc{field(fieldName, name), field(fieldQueue+"."+fieldWaiter, me)}
}

// withoutData is the projection of all fields but the data, with the server's clock.
var withoutData = mustMarshal(fieldsWithoutData)

// withReaders is withoutData with the readers, and withData with both.
var withReaders = mustMarshal(fieldsWithReaders)
var withData = mustMarshal(fieldsWithData)

var fieldsWithData = append(append(doc{}, fieldsWithReaders...), field(fieldData, 1))

// fieldsWithReaders are those of fieldsWithoutData and all readers, who may be many. Any value but an array is damage.
var fieldsWithReaders = append(append(doc{}, fieldsWithoutData...), field(fieldReaders,
	cond(isSharedVersion, expr("$ifNull", ref(fieldReaders), false), removeField)))

var fieldsWithoutData = doc{
	field(fieldVersion, 1), field(fieldLeaseID, 1), field(fieldOwner, 1), field(fieldRenewedAt, 1), field(fieldExpiresAt, 1),
	field(fieldAcquiredAt, 1), field(fieldToken, 1), field(fieldTTL, 1), field(fieldBroken, 1),
	field(fieldWrites, 1), field(fieldReserve, 1), field(fieldRenewals, 1), field(fieldNow, serverNow),
}

// fieldsWithPast are all that Inspect returns.
var fieldsWithPast = append(append(doc{}, fieldsWithData...),
	field(fieldReleasedAt, 1), field(fieldBrokenAt, 1), field(fieldFreedAt, 1), field(fieldHistory, 1))

// readerFields are the fields of a reply about the reader with a lease: those of the record, without the other readers.
func readerFields(id driver.LeaseID) doc {
	return append(fieldsWithoutData[:len(fieldsWithoutData):len(fieldsWithoutData)],
		readersDamaged, field(fieldReader, expr("$arrayElemAt", filter(sharedReaders, isLease(id)), 0)))
}

// about is the projection of a record without its data, and of its readers with the lease alone.
func about(lease driver.Lease) bson.Raw {
	if lease.Mode == driver.Shared {
		return mustMarshal(readerFields(lease.ID))
	}
	return withoutData
}

// queueProjection has the fields of a reply that say how long the queue is, and where a Locker is
// in it.
func queueProjection(me string) doc {
	waiters := expr("$ifNull", ref(fieldQueue+"."+fieldWaiter), list{})
	return doc{
		field(fieldWaiters, docOf("$size", waiters)),
		field(fieldPosition, expr("$add", expr("$indexOfArray", waiters, me), 1)),
	}
}

// readerTurn is the field of a reply that says which turn a reader in the queue has.
func readerTurn(me string) doc {
	in := withQueue(true, expr("$add", refPlace, 1))
	return doc{field(fieldTurn, let(varMe, literal(me), in))}
}

// wokenFields are the fields of a reply that show which waiters a release wakes: the first of those that are
// alive and do not poll, with their positions among all. If readers are among them, this process finds out by the whole
// queue; see hintsTo.
var wokenFields = doc{field(fieldLine, cond(expr("$gt", ref(fieldQueue+"."+fieldShared), list{}), ref(fieldQueue), removeField)),
	field(fieldWoken, let("queue", queueOf(), let("wakeable", filter(refQueue, and(not(polls), alive)),
		mapped(expr("$slice", "$$wakeable", howManyWoken("$$wakeable")), doc{
			field(fieldWaiter, refOne+"."+fieldWaiter),
			field(fieldPosition, expr("$add", indexOf(refQueue, refOne+"."+fieldWaiter), 1)),
		}))))}

// sharedFields are further ones, for a record whose readers may go on: who is woken then depends on more.
var sharedFields = doc{field(fieldLeaseID, 1), field(fieldExpiresAt, 1), field(fieldFull,
	expr("$gte", docOf("$size", filter(sharedReaders, expr("$gt", refOne+"."+readerExpires, serverNow))), driver.MaxHolders))}

// wokenProjection is the projection of the waiters that a release wakes. sharedWoken is for a lock that others may go on to
// hold, or hold by now. withWoken also has the record, and withReadersWoken all readers besides.
var (
	wokenProjection = mustMarshal(append(doc{field(fieldVersion, 1), field(fieldNow, serverNow)}, wokenFields...))
	sharedWoken     = mustMarshal(slices.Concat(doc{field(fieldVersion, 1), field(fieldNow, serverNow)}, wokenFields, sharedFields))
	withWoken       = mustMarshal(slices.Concat(fieldsWithoutData, wokenFields, sharedFields[2:]))

	withReadersWoken = mustMarshal(append(append(doc{}, fieldsWithReaders...), wokenFields...))
)

// projectionWoken is withWoken without the readers, but for one with the lease.
func projectionWoken(lease driver.Lease) bson.Raw {
	if lease.Mode == driver.Shared {
		return mustMarshal(slices.Concat(readerFields(lease.ID), wokenFields, sharedFields[2:]))
	}
	return withWoken
}

// withPast is the projection of all that Inspect returns, and withDataAndWaiters that of a list.
var (
	withPast           = mustMarshal(slices.Concat(fieldsWithPast, queueProjection("")))
	withDataAndWaiters = mustMarshal(slices.Concat(fieldsWithData, queueProjection("")))
)

// placeProjection is a projection of some fields whose replies say where a waiter is in the queue. Encoding one takes as long as the
// rest of a request, so the latest is kept: most Lockers have one waiter that asks alone.
type placeProjection struct {
	fields doc
	latest atomic.Pointer[encodedFor]
}

type encodedFor struct {
	place string
	raw   bson.Raw
}

// by returns the projection for a waiter. See placeOf.
func (p *placeProjection) by(place string) bson.Raw {
	latest := p.latest.Load()
	if latest == nil || latest.place != place {
		latest = &encodedFor{place, mustMarshal(slices.Concat(p.fields, queueProjection(place)))}
		p.latest.Store(latest)
	}
	return latest.raw
}
