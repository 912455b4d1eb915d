package mongo

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// The holders of a lock that is held [driver.Shared] are an array in its document. From the grant to a reader until the
// next grant to a writer the document has another version, sharedVersion, so the commands for exclusive leases do not
// match it, and know nothing of readers. An exclusive request that meets such a document is sent again, in the form
// that does; see [Locker.apply].
//
// While there are readers, the field kid is sharedHolder, expiresAt is when the last of their leases ends, and ttl is
// the longest of their TTLs. The other fields describe the latest grant.

// The variables of an acquire that knows readers.
const (
	refReaders = "$$readers" // all; none if the last grant was to a writer
	refLive    = "$$live"    // those whose leases have not expired
	refUnheld  = "$$unheld"  // whether the lock has no holder, or its lease has expired
	refJoins   = "$$joins"   // whether a reader may join those that hold the lock
	refNext    = "$$next"
	refX       = "$$x"
)

// acquireAmongReaders is acquireExpression for a record that has readers or may get them. Its rules are those of package
// lockstate.
func acquireAmongReaders(v acquireVariant) doc {
	unheld := or(not(ref(fieldLeaseID)), expr("$lte", ref(fieldExpiresAt), serverNow))
	// Promise 1: a reader joins only readers, and a writer is granted the lock only after the last of their leases.
	joins := any(false)
	if v.shared {
		writerBefore := expr("$gt", docOf("$size", filter(refBefore, and(not(refOne+"."+fieldShared), alive))), 0)
		joins = and(not(refUnheld), expr("$gt", docOf("$size", refReaders), 0),
			expr("$lt", docOf("$size", refLive), driver.MaxHolders), not(writerBefore))
	}
	free := list{and(refUnheld, not(reserved())), refJoins}
	if v.replace {
		// Promise 10: as for one holder. A grant or a renewal by any reader changes the revision.
		free = append(free, or(expr("$eq", list{ref(fieldLeaseID), ref(fieldRenewedAt)}, refReplaced),
			expr("$eq", list{ref(fieldLeaseID), ref(fieldToken), ref(fieldRenewals)}, refReplaced)))
	}
	granted := expr("$mergeObjects", doc(grantFields(v, historyAmongReaders(v))), queueAfterGrant(refUnheld))
	refused := queueAfterRefusal(v.shared)
	var decision doc
	if v.shared {
		granted = let("next", readersAfterGrant(), expr("$mergeObjects", granted, sumOf(refNext)))
		// Promise 5: a repeat by a reader keeps its token, and renews its lease alone.
		mine := expr("$eq", refOne+"."+readerID, refID)
		decision = let("mine", expr("$arrayElemAt", filter(refLive, mine), 0), cond("$$mine",
			cond("$$mine."+readerBroken, refused, doc(renewedReaders(mine, refTTL))),
			cond(or(free...), granted, refused)))
	} else {
		repeat := expr("$eq", list{ref(fieldVersion), ref(fieldLeaseID), expr("$ifNull", ref(fieldBroken), false)},
			list{schemaVersion, refID, false})
		decision = cond(or(free...), granted, cond(repeat, doc(renewalFields(refTTL)), refused))
	}
	decision = let("live", filter(refReaders, expr("$gt", refOne+"."+readerExpires, serverNow)),
		let("unheld", unheld, withQueue(v.shared, let("joins", joins, decision))))
	return let("readers", sharedReaders, expr("$mergeObjects", root, cond(or(validOrNew(), validWithReaders()), decision, doc{})))
}

// sharedReaders are the readers of a record, none unless its latest grant was to one.
var sharedReaders = cond(and(isSharedVersion, docOf("$isArray", ref(fieldReaders))), ref(fieldReaders), list{})

var isSharedVersion = expr("$eq", ref(fieldVersion), sharedVersion)

// readersDamaged is the field of a reply that says that a record which should have readers is not valid. The reply does not
// show them all.
var readersDamaged = field(fieldDamaged, let("readers", sharedReaders,
	cond(and(isSharedVersion, not(validWithReaders())), true, removeField)))

// validWithReaders is true for a valid record whose latest grant was to a reader.
func validWithReaders() doc {
	shape := list{ref(fieldVersion), docOf("$type", ref(fieldLeaseID)), docOf("$type", ref(fieldExpiresAt)), docOf("$type", ref(fieldToken)),
		docOf("$type", ref(fieldReaders)), expr("$ifNull", ref(fieldLeaseID), sharedHolder), expr("$gt", docOf("$size", refReaders), 0)}
	shapes := list{
		list{sharedVersion, "string", "date", "long", "array", sharedHolder, true},
		list{sharedVersion, "missing", "date", "long", "array", sharedHolder, false},
	}
	ends := expr("$ifNull", docOf("$max", refReaders+"."+readerExpires), ref(fieldExpiresAt)) // of no readers it is null
	types := mapped(refReaders, list{
		docOf("$type", refOne+"."+readerID), docOf("$type", refOne+"."+readerExpires), docOf("$type", refOne+"."+readerToken),
	})
	return and(expr("$in", shape, literal(shapes)), expr("$lt", ref(fieldToken), lastToken), expr("$eq", ends, ref(fieldExpiresAt)),
		expr("$setIsSubset", types, literal(list{list{"string", "date", "long"}})))
}

// readersAfterGrant are the readers after a grant to one more: those whose leases have not expired stay if it joins them.
func readersAfterGrant() doc {
	return expr("$concatArrays", cond(refJoins, refLive, list{}), list{doc{
		field(readerID, refID), field(readerOwner, refOwner), field(readerToken, nextToken()), field(readerTTL, refTTL),
		field(readerExpires, nowPlus(refTTL)), field(readerAcquired, serverNow), field(readerRenewed, serverNow),
	}})
}

// sumOf are the fields that depend on all readers, of which there are some.
func sumOf(readers string) doc {
	return doc{
		field(fieldReaders, readers),
		field(fieldTTL, docOf("$max", readers+"."+readerTTL)),
		field(fieldExpiresAt, docOf("$max", readers+"."+readerExpires)),
	}
}

// historyAmongReaders is the history after a grant. Readers that have ended before are in it already.
func historyAmongReaders(v acquireVariant) doc {
	taken := and(not(refUnheld), not(refJoins))
	ended := cond(taken, refReaders, filter(refReaders, expr("$lte", refOne+"."+readerExpires, serverNow)))
	end, until := cond(taken, endNumber(driver.EndTakenOver), endNumber(driver.EndExpired)), cond(taken, serverNow, refX+"."+readerExpires)
	return expr("$slice", cond(isSharedVersion,
		withEnded(ended, brokenOr(end), until), expr("$concatArrays", keptHistory, list{pastOf(v)})), refKeep)
}

// withEnded is the history with the tenures of readers that have ended. A history is in the order of tokens. end and
// until say how and when the reader refX ended. Nothing but the last tenures would be kept of many.
func withEnded(ended, end, until any) doc {
	before := filter("$$value", expr("$lt", refOne+"."+pastToken, refX+"."+readerToken))
	after := filter("$$value", expr("$gte", refOne+"."+pastToken, refX+"."+readerToken))
	one := doc{
		field(pastOwner, refX+"."+readerOwner), field(pastToken, refX+"."+readerToken), field(pastAcquired, refX+"."+readerAcquired),
		field(pastUntil, until), field(pastEnd, end),
	}
	return docOf("$reduce", doc{
		field("input", expr("$slice", ended, -driver.MaxHistory)), field("initialValue", keptHistory),
		field("in", let("x", refOne, expr("$concatArrays", before, list{one}, after))),
	})
}

func endNumber(e driver.End) int32 { return int32(e) }

// brokenOr is the end of the reader refX, if it was not broken.
func brokenOr(end any) doc { return cond(refX+"."+readerBroken, endNumber(driver.EndBroken), end) }

// renewedReaders are the fields of a renewal by the readers that match a condition, by a TTL in milliseconds.
func renewedReaders(matches, ttl any) []bson.E {
	tokens := docOf("$map", doc{field("input", filter(ref(fieldReaders), matches)), field("in", refOne+"."+readerToken)})
	return []bson.E{
		field(fieldReaders, mapped(ref(fieldReaders), cond(matches, expr("$mergeObjects", refOne, doc{
			// Promise 2: a renewal never shortens the lease.
			field(readerExpires, expr("$max", refOne+"."+readerExpires, nowPlus(ttl))),
			field(readerTTL, expr("$max", refOne+"."+readerTTL, ttl)), field(readerRenewed, serverNow),
		}), refOne))),
		// Promise 10: a renewal by any reader shows that the lock is not stuck.
		// At least the time, as a token: so no later renewal has the number of one that a fail-over forgot, while the clock is right.
		field(fieldRenewals, expr("$max", docOf("$toLong", serverNow), expr("$add", expr("$ifNull", ref(fieldRenewals), int64(0)), int64(1)))),
		field(fieldRenewedAt, cond(expr("$in", ref(fieldToken), tokens), serverNow, ref(fieldRenewedAt))),
		field(fieldExpiresAt, maxWith(fieldExpiresAt, nowPlus(ttl))),
		field(fieldTTL, maxWith(fieldTTL, ttl)),
	}
}

// endReaders ends the readers that match a condition. end is how, for the reader refX. The lock is free after the last
// one has ended. If no other has a valid lease, those whose leases have expired end, too: the turns of the waiters would count from their
// expiry.
func endReaders(matches, end any, keep int) list {
	ending := func(matches, end, until any) bson.E {
		return field(fieldHistory, expr("$slice", withEnded(filter(ref(fieldReaders), matches), end, until), -keep))
	}
	left := ref(fieldReaders)
	held := expr("$gt", docOf("$max", left+"."+readerExpires), serverNow) // of no readers it is null, which is less than all dates
	return list{
		docOf("$set", doc{
			ending(matches, end, serverNow),
			field(fieldReaders, filter(left, not(matches))),
		}),
		docOf("$set", doc{
			ending(not(held), brokenOr(endNumber(driver.EndExpired)), refX+"."+readerExpires),
			field(fieldReaders, cond(held, left, list{})),
			field(fieldLeaseID, cond(held, ref(fieldLeaseID), removeField)),
			field(fieldExpiresAt, cond(held, docOf("$max", left+"."+readerExpires), serverNow)),
			field(fieldTTL, cond(held, docOf("$max", left+"."+readerTTL), ref(fieldTTL))),
		}),
	}
}

// breakReaders breaks the readers that match a condition. See withChangeCount.
func breakReaders(matches any) list {
	return setFields(
		field(fieldReaders, mapped(ref(fieldReaders), cond(matches, expr("$mergeObjects", refOne, docOf(readerBroken, true)), refOne))),
		field(fieldChanges, expr("$add", expr("$ifNull", ref(fieldChanges), int64(0)), int64(1))),
	)
}

// isLease is true for a reader with the lease ID, and hasToken for one with any of the tokens.
func isLease(id driver.LeaseID) doc { return expr("$eq", refOne+"."+readerID, literal(id.Reveal())) }
func hasToken(tokens list) doc      { return expr("$in", refOne+"."+readerToken, literal(tokens)) }
