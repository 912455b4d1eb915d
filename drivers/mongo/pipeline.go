package mongo

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
)

// lastToken could not be outgrown.
const lastToken = int64(math.MaxInt64)

// Conditions of acquirePipeline that are the same for every request.
var (
	noHolder  = raw(call("$eq", is("$type", ref(fieldKid)), "missing"))
	notBroken = raw(call("$eq", call("$ifNull", ref(fieldBroken), false), false))

	// shape is what the fields that decide are of: a held lock has all three, a
	// free one may lack the others too.
	shape  = list{is("$type", ref(fieldKid)), is("$type", ref(fieldExpiresAt)), is("$type", ref(fieldToken))}
	shapes = list{
		list{"string", "date", "long"},
		list{"missing", "date", "long"}, list{"missing", "missing", "long"},
		list{"missing", "date", "missing"}, list{"missing", "missing", "missing"},
	}
	// unfit is true for a document that is not one of ours, or is damaged. A
	// document of nothing but its _id is the one that this upsert makes.
	unfit = raw(not(or(
		and(
			call("$eq", ref(fieldVersion), schemaVersion),
			call("$in", shape, literal(shapes)),
			call("$lt", ref(fieldToken), lastToken),
		),
		call("$eq", root, is(fieldName, ref(fieldName))),
	)))
)

// acquirePipeline decides on the server, at one instant of its clock, whether
// the lock is granted, and leaves the document as it is if not.
//
// A condition on a filter would not do: an upsert whose filter does not match a
// document that is there tries to insert a second one, and the server refuses
// $expr in the filter of an upsert.
//
// Whatever the caller chose goes in as $literal: an owner "$kid" would
// otherwise name a field. Types are checked first, because BSON orders values
// of different types: a missing expiresAt, a text or a number is "less" than any
// date and would make a held lock look expired.
//
// The server parses all this for every acquire, which costs more than the rest
// of the command: hence few and short expressions.
func acquirePipeline(req holdfast.Request) list {
	free := list{noHolder, call("$lte", ref(fieldExpiresAt), serverNow)}
	if replaced, replacedAt, ok := parseRevision(req.Replace); ok && replaced != req.ID {
		free = append(free, and(
			call("$eq", ref(fieldKid), literal(replaced)), call("$eq", ref(fieldRenewedAt), replacedAt)))
	}
	repeat := and(call("$eq", ref(fieldKid), literal(req.ID)), notBroken)

	return list{is("$replaceWith", call("$mergeObjects", root, is("$switch", doc{
		{Key: "branches", Value: list{
			branch(unfit, doc{}),
			branch(or(free...), doc(grant(req))),
			branch(repeat, doc(extension(req.TTL))),
		}},
		{Key: "default", Value: doc{}},
	})))}
}

// grant are the fields of a new lease. The token outgrows the last one, and
// also one that went with a removed document, once the server's clock is past
// it.
func grant(req holdfast.Request) []bson.E {
	fields := []bson.E{
		field(fieldVersion, schemaVersion),
		field(fieldKid, literal(req.ID)),
		field(fieldOwner, literal(req.Owner)),
		field(fieldRenewedAt, serverNow),
		field(fieldAcquiredAt, serverNow),
		field(fieldExpiresAt, after(req.TTL)),
		field(fieldToken, call("$max", call("$add", ref(fieldToken), int64(1)), is("$toLong", serverNow))),
		field(fieldTTL, req.TTL.Milliseconds()),
		field(fieldBroken, false),
	}
	if req.Data != nil {
		fields = append(fields, field(fieldData, literal(binary(req.Data))))
	}
	return fields
}

// extension are the fields of a renewal. It never shortens the lease. The TTL
// does not shrink either: a waiter that watches one renewal for a whole TTL must
// not replace a lease that a longer one still covers.
func extension(ttl time.Duration) []bson.E {
	return []bson.E{
		field(fieldRenewedAt, serverNow),
		field(fieldExpiresAt, latest(fieldExpiresAt, after(ttl))),
		field(fieldTTL, latest(fieldTTL, ttl.Milliseconds())),
	}
}

// liberation are the fields of a release. The document stays, and with it the
// token and the data.
func liberation() []bson.E {
	return []bson.E{field(fieldKid, nothing), field(fieldExpiresAt, serverNow), field(fieldBroken, false)}
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
func heldBy(l holdfast.Lease, more ...bson.E) doc {
	return proper(l.Name, append([]bson.E{field(fieldKid, is("$eq", l.ID))}, more...)...)
}

// unbroken matches also a document without the field.
var unbroken = field(fieldBroken, is("$in", list{false, nil}))

// facts is the projection of all fields but the data, with the server's clock.
var facts = raw(factFields)

// everything is facts and the data.
var everything = raw(append(append(doc{}, factFields...), field(fieldData, 1)))

var factFields = doc{
	field(fieldVersion, 1), field(fieldKid, 1), field(fieldOwner, 1), field(fieldRenewedAt, 1), field(fieldExpiresAt, 1),
	field(fieldAcquiredAt, 1), field(fieldToken, 1), field(fieldTTL, 1), field(fieldBroken, 1), field(fieldNow, serverNow),
}
