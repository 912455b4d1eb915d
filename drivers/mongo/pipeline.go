package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// lastToken cannot be exceeded, so a record that has it is damaged.
const lastToken = int64(math.MaxInt64)

// The variables of an acquire, and the expressions that refer to them.
const (
	varID, refID             = "id", "$$id"
	varOwner, refOwner       = "owner", "$$owner"
	varTTL, refTTL           = "ttl", "$$ttl"
	varData, refData         = "data", "$$data"
	varReplaced, refReplaced = "replaced", "$$replaced"
	varMe, refMe             = "me", "$$me"
	varQueueFor, refQueueFor = "queueFor", "$$queueFor"
	varPolls, refPolls       = "polls", "$$polls" // true or missing
	varKeep, refKeep         = "keep", "$$keep"
)

// acquirePipeline decides on the server, at one instant of its clock, whether the lock is
// granted. If not, the document stays as it is, but for the queue. who is the Locker in queues; if it has no ID, a lock
// with a queue is refused, since few locks have one, and their rules take the server longer. keep is
// how many past holders a grant keeps.
//
// The condition cannot be in the filter: an upsert whose filter does not match the existing
// document tries to insert a second one, and the server refuses $expr in the filter of an
// upsert.
//
// Every value of the caller's is the $literal value of a variable; otherwise the owner "$kid"
// would name a field. The rest is the same for every request and is encoded only once:
// encoding it took as long as the server takes for the grant.
func acquirePipeline(who asker, req driver.Request, keep int) list {
	variables := doc{
		field(varID, literal(req.ID.Reveal())), field(varOwner, literal(req.Owner)), field(varTTL, req.TTL.Milliseconds()),
		field(varKeep, -keep),
	}
	var v acquireVariant
	if v.data = req.Data != nil; v.data {
		variables = append(variables, field(varData, literal(binary(req.Data))))
	}
	v.shared = req.Mode == driver.Shared
	v.readers = v.shared || who.amongReaders
	replaced, ok := replacedBy(req.Replace, v.readers)
	// A writer that replaces itself repeats its request.
	if v.replace = ok && (v.shared || replaced[0] != req.ID.Reveal()); v.replace {
		variables = append(variables, field(varReplaced, literal(replaced)))
	}
	if v.queue = who.id != "" || v.readers; v.queue {
		polls := any(removeField)
		if who.polls {
			polls = true
		}
		variables = append(variables, field(varMe, who.id), field(varPolls, polls), field(varQueueFor, req.QueueFor.Milliseconds()))
	}
	return list{docOf("$replaceWith", docOf("$let", doc{{Key: "vars", Value: variables}, {Key: "in", Value: acquireExpressions[v]}}))}
}

// asker is a Locker as the queue of a lock sees it.
type asker struct {
	id           string
	polls        bool // no hint wakes it
	amongReaders bool // the last grant of the lock was to a reader
}

// acquireVariant says which optional parts a request has. One that knows readers has a queue. One
// for a reader, which is shared, knows readers and has no data.
type acquireVariant struct{ data, replace, queue, readers, shared bool }

var acquireExpressions = allAcquireExpressions()

func allAcquireExpressions() map[acquireVariant]bson.Raw {
	all := map[acquireVariant]bson.Raw{}
	for n := range 8 {
		v := acquireVariant{data: n&1 != 0, replace: n&2 != 0, queue: n&4 != 0}
		all[v] = acquireExpression(v)
	}
	for n := range 8 {
		v := acquireVariant{data: n&1 != 0, replace: n&2 != 0, queue: true, readers: true, shared: n&4 != 0}
		if !v.data || !v.shared {
			all[v] = mustMarshal(acquireAmongReaders(v))
		}
	}
	return all
}

// acquireExpression is the document after an acquire. It checks types first, because BSON
// orders values of different types: a missing expiresAt, a string or a number is "less" than
// any date and would make a held lock look expired.
//
// The server parses the expression for every acquire, at about a microsecond for each
// operator, so it has few and short ones.
func acquireExpression(v acquireVariant) bson.Raw {
	// With the types checked, the lease ID (kid) is a string or missing, and any string is true.
	// Promise 1: the lock is granted only if it has no holder or its lease has expired. One
	// command on one document decides.
	// Promise 8: the server's clock decides about the expiry.
	unheld := or(not(ref(fieldLeaseID)), expr("$lte", ref(fieldExpiresAt), serverNow))
	free := list{and(unheld, expr("$lte", ref(fieldReserve), 0))} // also if it is missing
	if v.queue {
		free = list{and(unheld, not(reserved()))}
	}
	if v.replace {
		// Promise 10: a waiter that saw this holder and this renewal for a whole TTL replaces it.
		// Any later renewal changes ts, and the comparison fails.
		free = append(free, expr("$eq", list{ref(fieldLeaseID), ref(fieldRenewedAt)}, refReplaced))
	}
	// Promise 5: the holder's own ID again keeps its token, so an acquire can be repeated.
	repeat := expr("$eq", list{ref(fieldLeaseID), expr("$ifNull", ref(fieldBroken), false)}, list{refID, false})
	decide := func(granted, refused any) doc {
		return expr("$mergeObjects", root,
			cond(validOrNew(),
				cond(or(free...), granted,
					cond(repeat, doc(renewalFields(refTTL)), refused)),
				doc{}))
	}
	if v.queue {
		granted := expr("$mergeObjects", doc(grantFields(v)), queueAfterGrant(unheld))
		return mustMarshal(withQueue(false, decide(granted, queueAfterRefusal(false))))
	}
	return mustMarshal(decide(doc(grantFields(v)), doc{}))
}

// validOrNew is true for a valid record, and for a document that has only its _id: the one
// that this upsert creates.
func validOrNew() doc {
	// A held lock has all the fields that decide; a free one may lack some.
	shape := list{ref(fieldVersion), docOf("$type", ref(fieldLeaseID)), docOf("$type", ref(fieldExpiresAt)), docOf("$type", ref(fieldToken))}
	shapes := list{
		list{schemaVersion, "string", "date", "long"},
		list{schemaVersion, "missing", "date", "long"}, list{schemaVersion, "missing", "missing", "long"},
		list{schemaVersion, "missing", "date", "missing"}, list{schemaVersion, "missing", "missing", "missing"},
	}
	return or(
		and(expr("$in", shape, literal(shapes)), expr("$lt", ref(fieldToken), lastToken)),
		expr("$eq", root, docOf(fieldName, ref(fieldName))),
	)
}

// grantFields are the fields of a new lease.
func grantFields(v acquireVariant) []bson.E {
	fields := []bson.E{
		field(fieldVersion, schemaVersion),
		field(fieldLeaseID, refID),
		field(fieldOwner, refOwner),
		field(fieldRenewedAt, serverNow),
		field(fieldAcquiredAt, serverNow),
		field(fieldExpiresAt, nowPlus(refTTL)),
		field(fieldToken, nextToken()),
		field(fieldTTL, refTTL),
		field(fieldBroken, false),
		field(fieldWrites, int64(0)),
		field(fieldHistory, historyAfterGrant(v)),
		// The object is merged into the document, so a field that is removed from it would stay.
		field(fieldReleasedAt, nil), field(fieldBrokenAt, nil), field(fieldFreedAt, nil),
	}
	if v.data {
		fields = append(fields, field(fieldData, refData))
	}
	switch {
	case v.shared:
		fields[0], fields[1] = field(fieldVersion, sharedVersion), field(fieldLeaseID, sharedHolder)
		fields = append(fields, field(fieldRenewals, int64(0)))
	case v.readers:
		fields = append(fields, field(fieldReaders, list{}))
	}
	return fields
}

// nextToken is the token of a grant.
func nextToken() doc {
	// Promise 3: greater than the last token, and than one that was removed with its document, once the server's
	// clock has passed it.
	return expr("$max", expr("$add", ref(fieldToken), int64(1)), docOf("$toLong", serverNow))
}

// renewalFields are the fields of a renewal by a TTL in milliseconds.
func renewalFields(ttl any) []bson.E {
	return []bson.E{
		// Promise 1: each renewal has another time, also after the server's clock stepped back. A
		// waiter replaces a holder whose ID and time are unchanged, and so never one that renews.
		field(fieldRenewedAt, cond(expr("$eq", docOf("$type", ref(fieldRenewedAt)), "date"),
			expr("$max", serverNow, expr("$add", ref(fieldRenewedAt), int64(1))), serverNow)),
		// Promise 2: a renewal never shortens the lease that the holder's deadline counts on.
		field(fieldExpiresAt, maxWith(fieldExpiresAt, nowPlus(ttl))),
		// Promise 10: waiters wait for the longest TTL, which the lease may still cover.
		field(fieldTTL, maxWith(fieldTTL, ttl)),
	}
}

// releaseUpdate releases the lock with update operators, which cost the server less than a
// pipeline. The TTL index counts from the new expiry, the server's present time. freeUpdate is that of
// an operator.
var (
	releaseUpdate = mustMarshal(freeing(fieldReleasedAt))
	freeUpdate    = mustMarshal(freeing(fieldFreedAt))
	breakUpdate   = mustMarshal(withChangeCount(field("$set", docOf(fieldBroken, true)), field("$currentDate", docOf(fieldBrokenAt, true))))
)

// freeing frees the lock and leaves the time in a field.
func freeing(endedAt string) doc {
	return doc{
		field("$unset", docOf(fieldLeaseID, "")), // Promise 3: the document stays, and with it the token
		field("$currentDate", doc{field(fieldExpiresAt, true), field(endedAt, true)}),
		field("$set", docOf(fieldBroken, false)),
	}
}

// withChangeCount is an update that always changes the document, even if the fields already
// have their values. A majority acknowledges only a write that changes something; a primary
// that was deposed without knowing it would confirm any other.
func withChangeCount(changes ...bson.E) doc {
	return append(changes, field("$inc", docOf(fieldChanges, int64(1))))
}

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
