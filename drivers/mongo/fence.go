package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FenceField is the field of the program's own documents in which a [Fence]
// keeps the token of the last holder that wrote them.
const FenceField = "fence"

// Fence is the fencing token of a hold, put to work in single writes: where
// transactions are too much, each write carries the token and names it in its
// filter.
//
//	fence := mongo.Fence(hold.Token())
//	result, err := accounts.UpdateOne(ctx,
//		fence.Filter(bson.D{{Key: "_id", Value: 7}}),
//		bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: 10}, fence.Mark()}}})
//	// result.MatchedCount == 0: no such account, or a later holder wrote it
//
// What it refuses: a write to a document that a holder with a greater token has
// already marked. What it does not refuse: a write to a document that the later
// holder has not come to yet, so that documents which must change together need
// a [Guard]; a write after the lease ended if no later holder wrote; any write
// without the filter. A write that forgets [Fence.Mark] lets older ones through
// after it.
//
// With upsert, a refused filter means "not there", and the server inserts. Name
// the _id in the filter (or have a unique index on what it names): the refusal
// is then a duplicate key error (code 11000). Otherwise there are two documents
// afterwards. Inserts are refused by a unique key only. MongoDB applies a single
// write in one step, so nothing can come between comparison and write.
//
// Fence works with any write concern, but only a majority's acknowledgement
// survives a change of the primary, and with it the fence.
type Fence uint64

// Filter returns filter with the condition that no later holder has marked the
// document. A document without the field, such as one from before there was a
// lock, passes; one in which the field is no number does not. A token of 0, which
// is what [holdfast.TokenFrom] returns where there is no hold, matches nothing, and
// the server refuses an upsert with it.
func (f Fence) Filter(filter bson.D) bson.D {
	if filter == nil {
		filter = bson.D{}
	}
	if f == 0 || f > math.MaxInt64 {
		return and(filter, is("$expr", false)) // the server refuses $expr where it may insert
	}
	atMost := doc{{Key: "$lte", Value: int64(f)}, {Key: "$not", Value: is("$type", "array")}} // $lte looks into arrays
	return and(filter, or(is(FenceField, atMost), is(FenceField, is("$exists", false))))
}

// Mark returns the field to put into the $set of an update, or into a document
// that is inserted or that replaces another.
func (f Fence) Mark() bson.E {
	return field(FenceField, int64(min(f, math.MaxInt64)))
}
