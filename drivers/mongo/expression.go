package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// Short forms for aggregation expressions, so that a pipeline can be read.

type (
	doc  = bson.D
	list = bson.A
)

const (
	root      = "$$ROOT"
	serverNow = "$$NOW" // one instant for the whole command
	nothing   = "$$REMOVE"
)

// is is a document of one element.
func is(key string, value any) doc { return doc{{Key: key, Value: value}} }

// field is an element of a document.
func field(name string, value any) bson.E { return bson.E{Key: name, Value: value} }

// set is an update by pipeline; its values are expressions.
func set(fields ...bson.E) list { return list{is("$set", doc(fields))} }

// ref is the value of a field, and literal a value that is no expression,
// whatever it looks like.
func ref(name string) string { return "$" + name }
func literal(value any) doc  { return is("$literal", value) }

func call(operator string, args ...any) doc { return is(operator, list(args)) }
func and(conditions ...any) doc             { return is("$and", list(conditions)) }
func or(conditions ...any) doc              { return is("$or", list(conditions)) }
func not(condition any) doc                 { return call("$not", condition) }

// after is the instant a TTL in milliseconds from now, latest the later of it
// and a field.
func after(ttl any) doc                 { return call("$add", serverNow, ttl) }
func latest(name string, value any) doc { return call("$max", ref(name), value) }

// when is one value or another.
func when(condition, then, otherwise any) doc { return call("$cond", condition, then, otherwise) }

func binary(data []byte) bson.Binary { return bson.Binary{Data: data} }

// raw encodes a document that never changes once and for all.
func raw(d doc) bson.Raw {
	out, err := bson.Marshal(d)
	if err != nil {
		panic(err) // a mistake in this package's text
	}
	return out
}
