package mongo

import (
	"errors"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestFence(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for _, test := range []struct {
		name   string
		stored bson.D // beside the _id
		fence  Fence
		passes bool
	}{
		{"an older mark", bson.D{{Key: "fence", Value: int64(4)}}, 5, true},
		{"its own mark", bson.D{{Key: "fence", Value: int64(5)}}, 5, true},
		{"no mark", bson.D{}, 5, true},
		{"a later mark", bson.D{{Key: "fence", Value: int64(6)}}, 5, false},
		{"a mark written by hand", bson.D{{Key: "fence", Value: 4.0}}, 5, true},
		{"a mark that is a text", bson.D{{Key: "fence", Value: "4"}}, 5, false},
		{"a mark that is a list", bson.D{{Key: "fence", Value: bson.A{int64(1), int64(999)}}}, 5, false},
		{"a mark that is null", bson.D{{Key: "fence", Value: nil}}, 5, false},
		{"no token", bson.D{}, 0, false},
		{"the greatest token", bson.D{{Key: "fence", Value: int64(math.MaxInt64)}}, math.MaxInt64, true},
		{"an impossible token", bson.D{}, math.MaxInt64 + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := append(bson.D{{Key: "_id", Value: test.name}}, test.stored...)
			if _, err := coll.InsertOne(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			// The program's own $or stays a condition besides the fence's.
			filter := test.fence.Filter(bson.D{{Key: "$or", Value: bson.A{docOf("_id", test.name), docOf("_id", "another")}}})
			result, err := coll.UpdateOne(t.Context(), filter,
				bson.D{{Key: "$set", Value: bson.D{{Key: "value", Value: 1}, test.fence.Mark()}}})
			if err != nil || (result.MatchedCount == 1) != test.passes {
				t.Fatalf("matched %v, %v; want passes=%v", result, err, test.passes)
			}
			if !test.passes {
				return
			}
			var after struct{ Fence int64 }
			if err := coll.FindOne(t.Context(), docOf("_id", test.name)).Decode(&after); err != nil || after.Fence != int64(test.fence) {
				t.Errorf("marked %d, %v", after.Fence, err)
			}
		})
	}
}

// An upsert that the fence refuses is a duplicate key error, as documented.
func TestFenceWithUpsert(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	save := func(fence Fence) error {
		_, err := coll.ReplaceOne(t.Context(), fence.Filter(docOf("_id", 7)), bson.D{{Key: "value", Value: 1}, fence.Mark()},
			options.Replace().SetUpsert(true))
		return err
	}
	for _, fence := range []Fence{4, 5} { // inserts, replaces
		if err := save(fence); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(4); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("got %v, want a duplicate key error", err)
	}
	// Without a hold nothing is inserted either, whatever the filter is.
	for _, fence := range []Fence{0, math.MaxInt64 + 1} {
		_, updateErr := coll.UpdateOne(t.Context(), fence.Filter(docOf("name", "new")), docOf("$set", doc{fence.Mark()}),
			options.UpdateOne().SetUpsert(true))
		findErr := coll.FindOneAndUpdate(t.Context(), fence.Filter(nil), docOf("$set", doc{fence.Mark()}),
			options.FindOneAndUpdate().SetUpsert(true)).Err()
		for _, err := range []error{save(fence), updateErr, findErr} {
			if err == nil || errors.Is(err, mongo.ErrNoDocuments) || mongo.IsDuplicateKeyError(err) {
				t.Errorf("token %d: got %v, want a refusal", uint64(fence), err)
			}
		}
	}
	if n, err := coll.CountDocuments(t.Context(), doc{}); err != nil || n != 1 {
		t.Errorf("%d documents, %v; want the one", n, err)
	}
	// A nil filter matches every document.
	if n, err := coll.CountDocuments(t.Context(), Fence(5).Filter(nil)); err != nil || n != 1 {
		t.Errorf("counted %d, %v", n, err)
	}
}
