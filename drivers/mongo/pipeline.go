package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// lastToken could not be outgrown.
const lastToken = int64(math.MaxInt64)

// The variables of an acquire, and how expressions refer to them.
const (
	varID, theID             = "id", "$$id"
	varOwner, theOwner       = "owner", "$$owner"
	varTTL, theTTL           = "ttl", "$$ttl"
	varData, theData         = "data", "$$data"
	varReplaced, theReplaced = "replaced", "$$replaced"
	varFrom, theFrom         = "from", "$$from"
)

// acquirePipeline decides on the server, at one instant of its clock, whether
// the lock is granted, and leaves the document as it is if not. The lease with the
// ID from, unless that is empty, counts as over.
//
// A condition on a filter would not do: an upsert whose filter does not match a
// document that is there tries to insert a second one, and the server refuses
// $expr in the filter of an upsert.
//
// Whatever the caller chose goes in as the $literal value of a variable: an
// owner "$kid" would otherwise name a field. The rest is the same for every
// request and encoded once: encoding all of it took as long as the server takes
// for the grant.
func acquirePipeline(from string, req driver.Request) list {
	variables := doc{
		field(varID, literal(req.ID.Reveal())), field(varOwner, literal(req.Owner)), field(varTTL, req.TTL.Milliseconds()),
	}
	var v variation
	if v.data = req.Data != nil; v.data {
		variables = append(variables, field(varData, literal(binary(req.Data))))
	}
	replaced, replacedAt, ok := parseRevision(req.Replace)
	if v.replace = ok && replaced != req.ID.Reveal(); v.replace {
		variables = append(variables, field(varReplaced, literal(list{replaced, replacedAt})))
	}
	if v.handOver = from != "" && from != req.ID.Reveal(); v.handOver { // its own successor is a repeat
		variables = append(variables, field(varFrom, literal(from)))
	}
	return list{is("$replaceWith", is("$let", doc{{Key: "vars", Value: variables}, {Key: "in", Value: decisions[v]}}))}
}

// variation is what a request brings besides the usual.
type variation struct{ data, replace, handOver bool }

var decisions = everyDecision()

func everyDecision() map[variation]bson.Raw {
	all := map[variation]bson.Raw{}
	for n := range 8 {
		v := variation{data: n&1 != 0, replace: n&2 != 0, handOver: n&4 != 0}
		all[v] = decision(v)
	}
	return all
}

// decision is the document after an acquire. Types are checked first, because
// BSON orders values of different types: a missing expiresAt, a text or a number
// is "less" than any date and would make a held lock look expired.
//
// The server parses all this for every acquire, at about a microsecond for
// each expression: hence few and short ones.
func decision(v variation) bson.Raw {
	// Where the types are right, kid is a text or missing, and any text is true.
	free := list{not(ref(fieldKid)), call("$lte", ref(fieldExpiresAt), serverNow)}
	if v.replace {
		free = append(free, call("$eq", list{ref(fieldKid), ref(fieldRenewedAt)}, theReplaced))
	}
	if v.handOver {
		free = append(free, call("$eq", ref(fieldKid), theFrom)) // broken or not
	}
	repeat := call("$eq", list{ref(fieldKid), call("$ifNull", ref(fieldBroken), false)}, list{theID, false})
	return raw(call("$mergeObjects", root,
		when(fit(),
			when(or(free...), doc(grant(v)),
				when(repeat, doc(extension(theTTL)), doc{})),
			doc{})))
}

// fit is true for a sound document of ours, and for one of nothing but its
// _id, which is the one that this upsert makes.
func fit() doc {
	// A held lock has all the fields that decide, a free one may lack some.
	shape := list{ref(fieldVersion), is("$type", ref(fieldKid)), is("$type", ref(fieldExpiresAt)), is("$type", ref(fieldToken))}
	shapes := list{
		list{schemaVersion, "string", "date", "long"},
		list{schemaVersion, "missing", "date", "long"}, list{schemaVersion, "missing", "missing", "long"},
		list{schemaVersion, "missing", "date", "missing"}, list{schemaVersion, "missing", "missing", "missing"},
	}
	return or(
		and(call("$in", shape, literal(shapes)), call("$lt", ref(fieldToken), lastToken)),
		call("$eq", root, is(fieldName, ref(fieldName))),
	)
}

// grant are the fields of a new lease. The token outgrows the last one, and
// also one that went with a removed document, once the server's clock is past
// it.
func grant(v variation) []bson.E {
	fields := []bson.E{
		field(fieldVersion, schemaVersion),
		field(fieldKid, theID),
		field(fieldOwner, theOwner),
		field(fieldRenewedAt, serverNow),
		field(fieldAcquiredAt, serverNow),
		field(fieldExpiresAt, after(theTTL)),
		field(fieldToken, call("$max", call("$add", ref(fieldToken), int64(1)), is("$toLong", serverNow))),
		field(fieldTTL, theTTL),
		field(fieldBroken, false),
		field(fieldWrites, int64(0)),
	}
	if v.data {
		fields = append(fields, field(fieldData, theData))
	}
	return fields
}

// extension are the fields of a renewal by a TTL in milliseconds. It never
// shortens the lease. The TTL does not shrink either: a waiter that watches one
// renewal for a whole TTL must not replace a lease that a longer one still
// covers.
func extension(ttl any) []bson.E {
	return []bson.E{
		field(fieldRenewedAt, serverNow),
		field(fieldExpiresAt, latest(fieldExpiresAt, after(ttl))),
		field(fieldTTL, latest(fieldTTL, ttl)),
	}
}

// liberation is a release, by plain operators, which cost the server less than a
// pipeline. The document stays, and with it the token and the data; its expiry,
// which the TTL index counts from, becomes the server's present time.
var liberation = raw(doc{
	field("$unset", is(fieldKid, "")),
	field("$currentDate", is(fieldExpiresAt, true)),
	field("$set", is(fieldBroken, false)),
})

// counted is an update that always changes something, though the fields may have
// the values already: a write that changes nothing leaves nothing for a majority to
// acknowledge, and a primary that was deposed without knowing it would confirm it.
func counted(change bson.E) doc {
	return doc{change, field("$inc", is(fieldChanges, int64(1)))}
}

// proper matches a document of ours whose fields that matter are sound.
func proper(name any, more ...bson.E) doc {
	return append(doc{
		field(fieldName, name),
		field(fieldVersion, schemaVersion),
		field(fieldExpiresAt, is("$type", "date")),
		field(fieldToken, doc{{Key: "$type", Value: "long"}, {Key: "$lt", Value: lastToken}}),
	}, more...)
}

// heldBy matches the document while a lease has it, expired or not.
func heldBy(l driver.Lease, more ...bson.E) doc {
	return proper(l.Name, append([]bson.E{field(fieldKid, is("$eq", l.ID.Reveal()))}, more...)...)
}

// sameData are the conditions that the data have a revision. A record from before there
// were revisions counts as one without a write.
func sameData(at driver.DataRevision) bson.E {
	writes := list{int64(at.Writes)}
	if at.Writes == 0 {
		writes = append(writes, nil)
	}
	return field("$and", list{is(fieldToken, int64(at.Token)), is(fieldWrites, is("$in", writes))})
}

// unbroken matches also a document without the field.
var unbroken = field(fieldBroken, is("$in", list{false, nil}))

// facts is the projection of all fields but the data, with the server's clock.
var facts = raw(factFields)

// everything is facts and the data.
var everything = raw(append(append(doc{}, factFields...), field(fieldData, 1)))

var factFields = doc{
	field(fieldVersion, 1), field(fieldKid, 1), field(fieldOwner, 1), field(fieldRenewedAt, 1), field(fieldExpiresAt, 1),
	field(fieldAcquiredAt, 1), field(fieldToken, 1), field(fieldTTL, 1), field(fieldBroken, 1),
	field(fieldWrites, 1), field(fieldNow, serverNow),
}
