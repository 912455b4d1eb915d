package mongo

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Short forms for aggregation expressions, to keep pipelines readable.

type (
	doc  = bson.D
	list = bson.A
)

const (
	root        = "$$ROOT"
	serverNow   = "$$NOW" // the server's clock: one instant for the whole command
	removeField = "$$REMOVE"
)

// docOf returns a document with one element.
func docOf(key string, value any) doc { return doc{{Key: key, Value: value}} }

// field returns an element of a document.
func field(name string, value any) bson.E { return bson.E{Key: name, Value: value} }

// setFields returns an update pipeline that sets fields; the values are expressions.
func setFields(fields ...bson.E) list { return list{docOf("$set", doc(fields))} }

// ref is the value of a field. literal is a value that the server never evaluates as an
// expression.
func ref(name string) string { return "$" + name }
func literal(value any) doc  { return docOf("$literal", value) }

func expr(operator string, args ...any) doc { return docOf(operator, list(args)) }
func and(conditions ...any) doc             { return docOf("$and", list(conditions)) }
func or(conditions ...any) doc              { return docOf("$or", list(conditions)) }
func not(condition any) doc                 { return expr("$not", condition) }

// nowPlus is the server's time plus a TTL in milliseconds. maxWith is the greater of a field
// and a value.
func nowPlus(ttl any) doc                { return expr("$add", serverNow, ttl) }
func maxWith(name string, value any) doc { return expr("$max", ref(name), value) }

// cond is one of two values.
func cond(condition, then, otherwise any) doc { return expr("$cond", condition, then, otherwise) }

func binary(data []byte) bson.Binary { return bson.Binary{Data: data} }

// mustMarshal encodes a constant document once.
func mustMarshal(d doc) bson.Raw {
	out, err := bson.Marshal(d)
	if err != nil {
		panic(err) // a programming error in this package
	}
	return out
}

// mongosh returns a command for mongosh, which also is a command of the server in JSON.
func mongosh(database string, cmd doc) string {
	text, err := bson.MarshalExtJSON(cmd, false, false)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("db.getSiblingDB(%q).runCommand(%s)", database, text)
}

// let evaluates an expression with one variable. A later variable refers to earlier ones only in
// an inner let.
func let(name string, value, in any) doc {
	return docOf("$let", doc{{Key: "vars", Value: docOf(name, value)}, {Key: "in", Value: in}})
}

// filter has the elements of an array, each of which is refOne, that match a condition.
func filter(input, condition any) doc {
	return docOf("$filter", doc{field("input", input), field("as", "this"), field("cond", condition)})
}

// mapped has an expression for each element of an array, which is refOne in it.
func mapped(input, in any) doc {
	return docOf("$map", doc{field("input", input), field("as", "this"), field("in", in)})
}
