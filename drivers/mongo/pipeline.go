package mongo

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
)

// Short forms for aggregation expressions.
type (
	doc  = bson.D
	list = bson.A
)

const (
	root    = "$$ROOT"
	serverT = "$$NOW" // one instant for the whole command
	nothing = "$$REMOVE"
)

func is(key string, value any) doc          { return doc{{Key: key, Value: value}} }
func literal(value any) doc                 { return is("$literal", value) }
func and(conditions ...any) doc             { return is("$and", list(conditions)) }
func or(conditions ...any) doc              { return is("$or", list(conditions)) }
func not(condition any) doc                 { return is("$not", condition) }
func call(operator string, args ...any) doc { return is(operator, list(args)) }
func ref(field string) string               { return "$" + field }
func typeOf(field string, types ...any) doc { return call("$in", is("$type", ref(field)), list(types)) }
func in(ttl time.Duration) doc              { return call("$add", serverT, ttl.Milliseconds()) }
func latest(field string, value any) doc    { return call("$max", ref(field), value) }
func set(fields ...bson.E) list             { return list{is("$set", doc(fields))} }
func notBroken() doc                        { return call("$eq", call("$ifNull", ref(fieldBroken), false), false) }
func field(name string, value any) bson.E   { return bson.E{Key: name, Value: value} }
func merged(fields ...bson.E) doc           { return call("$mergeObjects", root, doc(fields)) }
func branch(condition, result any) doc {
	return doc{{Key: "case", Value: condition}, {Key: "then", Value: result}}
}
func milliseconds(ttl time.Duration) int64 { return ttl.Milliseconds() }
func binary(data []byte) bson.Binary       { return bson.Binary{Data: data} }

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
func acquirePipeline(req holdfast.Request) list {
	var (
		id        = literal(req.ID)
		noHolder  = call("$eq", is("$type", ref(fieldKid)), "missing")
		dated     = typeOf(fieldExpiresAt, "date")
		unexpired = call("$gt", ref(fieldExpiresAt), serverT)
		// A document of nothing but its _id is the one that this upsert makes.
		fresh = call("$eq", root, is(fieldName, ref(fieldName)))
		ours  = and(
			call("$eq", ref(fieldVersion), schemaVersion),
			typeOf(fieldToken, "long", "int", "missing"),
			call("$lt", ref(fieldToken), int64(math.MaxInt64)),
			typeOf(fieldKid, "string", "missing"),
		)
	)
	available := list{not(unexpired)}
	if replaced, replacedAt, ok := parseRevision(req.Replace); ok && replaced != req.ID {
		available = append(available, and(
			call("$eq", ref(fieldKid), literal(replaced)), call("$eq", ref(fieldRenewedAt), replacedAt)))
	}
	free := or(
		and(noHolder, typeOf(fieldExpiresAt, "date", "missing")),
		and(not(noHolder), dated, or(available...)),
	)
	repeat := and(ours, call("$eq", ref(fieldKid), id), dated, unexpired, notBroken())

	return list{is("$replaceWith", is("$switch", doc{
		{Key: "branches", Value: list{
			branch(repeat, merged(extension(req.TTL)...)),
			branch(or(fresh, and(ours, free)), merged(grant(req)...)),
		}},
		{Key: "default", Value: root},
	}))}
}

// grant are the fields of a new lease. The token outgrows the last one, and
// also one that went with a removed document, once the server's clock is past
// it.
func grant(req holdfast.Request) []bson.E {
	fields := []bson.E{
		field(fieldVersion, schemaVersion),
		field(fieldKid, literal(req.ID)),
		field(fieldOwner, literal(req.Owner)),
		field(fieldRenewedAt, serverT),
		field(fieldAcquiredAt, serverT),
		field(fieldExpiresAt, in(req.TTL)),
		field(fieldToken, call("$max", call("$add", ref(fieldToken), int64(1)), is("$toLong", serverT), int64(1))),
		field(fieldTTL, milliseconds(req.TTL)),
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
		field(fieldRenewedAt, serverT),
		field(fieldExpiresAt, latest(fieldExpiresAt, in(ttl))),
		field(fieldTTL, latest(fieldTTL, milliseconds(ttl))),
	}
}

// liberation are the fields of a release. The document stays, and with it the
// token and the data.
func liberation() []bson.E {
	return []bson.E{field(fieldKid, nothing), field(fieldExpiresAt, serverT), field(fieldBroken, false)}
}

// proper matches a document of ours whose fields that matter are sound.
func proper(name any, more ...bson.E) doc {
	return append(doc{
		field(fieldName, name),
		field(fieldVersion, schemaVersion),
		field(fieldExpiresAt, is("$type", "date")),
		field(fieldToken, is("$type", list{"long", "int"})),
	}, more...)
}

// heldBy matches the document while a lease has it, expired or not.
func heldBy(l holdfast.Lease, more ...bson.E) doc {
	return proper(l.Name, append([]bson.E{field(fieldKid, is("$eq", l.ID))}, more...)...)
}

// unbroken matches also a document without the field.
var unbroken = field(fieldBroken, is("$in", list{false, nil}))

// facts is the projection of all fields but the data, with the server's clock.
var facts = doc{
	field(fieldVersion, 1), field(fieldKid, 1), field(fieldOwner, 1), field(fieldRenewedAt, 1), field(fieldExpiresAt, 1),
	field(fieldAcquiredAt, 1), field(fieldToken, 1), field(fieldTTL, 1), field(fieldBroken, 1), field(fieldNow, serverT),
}

// everything is facts and the data.
var everything = append(append(doc{}, facts...), field(fieldData, 1))
