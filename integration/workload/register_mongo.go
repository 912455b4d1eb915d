//go:build unix

package workload

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/history"
)

// mongoRegister is a document protected by mongo.Fence.
type mongoRegister struct{ documents *mongodriver.Collection }

// newMongoRegister creates the document, so that writes never have to.
func newMongoRegister(ctx context.Context, db *mongodriver.Database) (register, error) {
	coll := db.Collection("registers", options.Collection().SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Linearizable()).SetReadPreference(readpref.Primary()))
	_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: registerName}, {Key: "value", Value: int64(0)}})
	if err != nil && !mongodriver.IsDuplicateKeyError(err) {
		return nil, err
	}
	return mongoRegister{coll}, nil
}

func (mongoRegister) name() string { return "mongodb" }

func (r mongoRegister) read(ctx context.Context) (registerState, error) {
	var found struct{ Value, Fence int64 }
	err := r.documents.FindOne(ctx, bson.D{{Key: "_id", Value: registerName}}).Decode(&found)
	if found.Fence < 0 {
		return registerState{}, errors.New("the fence is negative")
	}
	return registerState{Token: uint64(found.Fence), Value: found.Value}, err
}

func (r mongoRegister) write(ctx context.Context, next registerState) (history.Outcome, error) {
	fence := mongo.Fence(next.Token)
	result, err := r.documents.UpdateOne(ctx, fence.Filter(bson.D{{Key: "_id", Value: registerName}}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "value", Value: next.Value}, fence.Mark()}}})
	switch {
	case err != nil:
		return history.Unknown, err
	case result.MatchedCount == 0:
		return history.Refused, nil
	}
	return history.OK, nil
}
