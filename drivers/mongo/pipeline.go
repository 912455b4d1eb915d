package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// acquireVariant says which optional parts a request has. One that knows readers has a queue. One
// for a reader, which is shared, knows readers and has no data.
type acquireVariant struct{ data, replace, queue, readers, shared bool }

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
		granted := expr("$mergeObjects", doc(grantFields(v, historyAfterGrant(v))), queueAfterGrant(unheld))
		return mustMarshal(withQueue(false, decide(granted, queueAfterRefusal(false))))
	}
	return mustMarshal(decide(doc(grantFields(v, historyAfterGrant(v))), doc{}))
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

// grantFields are the fields of a new lease, with the history after the grant.
func grantFields(v acquireVariant, history any) []bson.E {
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
		field(fieldHistory, history),
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

// historyAfterGrant is the history with the tenure before the grant. The first grant of all adds an
// empty one, which makes no difference: it is the first to be dropped.
func historyAfterGrant(v acquireVariant) doc {
	return expr("$slice", expr("$concatArrays", keptHistory, list{pastOf(v)}), refKeep)
}

// keptHistory is the history. A damaged one must not make a grant fail.
var keptHistory = cond(docOf("$isArray", ref(fieldHistory)), ref(fieldHistory), list{})

// pastOf is the tenure of the last exclusive lease.
func pastOf(v acquireVariant) doc {
	last := doc{
		field(pastOwner, ref(fieldOwner)), field(pastToken, ref(fieldToken)),
		field(pastAcquired, ref(fieldAcquiredAt)), field(pastExpires, ref(fieldExpiresAt)),
		field(pastReleased, ref(fieldReleasedAt)), field(pastBroken, ref(fieldBrokenAt)), field(pastFreed, ref(fieldFreedAt)),
		field(pastHeld, expr("$gt", ref(fieldLeaseID), nil)),
	}
	if v.replace {
		last = append(last, field(pastTaken, serverNow), field(pastTakenBy, takenByReplace))
	}
	return last
}
