package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FenceField is the field of the program's own documents in which a [Fence] stores the token
// of the last holder that wrote them.
const FenceField = "fence"

// Fence applies the fencing token of a hold to single writes. Use it where transactions are
// too expensive: each write stores the token and has it in its filter.
//
//	fence := mongo.Fence(hold.Token())
//	result, err := accounts.UpdateOne(ctx,
//		fence.Filter(bson.D{{Key: "_id", Value: 7}}),
//		bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: 10}, fence.Mark()}}})
//	// result.MatchedCount == 0: no such account, or a later holder wrote it
//
// It refuses a write to a document that a holder with a greater token has already marked.
//
// It does not refuse:
//
//   - a write to a document that the later holder has not marked yet; documents that must
//     change together need a [Guard]
//   - a write after the lease ended, if no later holder has written
//   - a write without the filter
//   - an older write after a write that omitted [Fence.Mark]
//
// With upsert, the server inserts a document if the filter matches none, also if the fence
// refused it. Name the _id in the filter, or have a unique index on the fields that it names:
// then the refusal is a duplicate key error (code 11000). Otherwise a second document is
// created. Inserts are refused by a unique key only. MongoDB applies a single write
// atomically, so nothing can happen between the comparison and the write.
//
// A fence works with any write concern, but only a write that a majority acknowledged survives
// a change of the primary.
type Fence uint64

// Filter returns filter with the condition that no later holder has marked the document. A
// document without the field matches, for example one that is older than the lock. A document
// in which the field is not a number does not match. A token of 0, which [holdfast.TokenFromContext]
// returns where there is no hold, matches nothing, and the server refuses an upsert with it.
func (f Fence) Filter(filter bson.D) bson.D {
	if filter == nil {
		filter = bson.D{}
	}
	if f == 0 || f > math.MaxInt64 {
		return and(filter, docOf("$expr", false)) // the server refuses $expr in the filter of an upsert
	}
	// Promise 3: a document that a greater token has marked does not match.
	// $lte alone also matches elements of an array
	atMost := doc{{Key: "$lte", Value: int64(f)}, {Key: "$not", Value: docOf("$type", "array")}}
	return and(filter, or(docOf(FenceField, atMost), docOf(FenceField, docOf("$exists", false))))
}

// Mark returns the element for the $set of an update, or for a document that is inserted or
// replaces another.
func (f Fence) Mark() bson.E {
	return field(FenceField, int64(min(f, math.MaxInt64)))
}
