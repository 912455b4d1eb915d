package fencedwrite

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

var (
	client   *holdfast.Client
	accounts *mongo.Collection
	report   *blockblob.Client
	text     []byte
)

func guarded(ctx context.Context, guard *holdmongo.Guard, hold *holdfast.Hold) error {
	_ = guard.Do(ctx, hold, func(context.Context) error {
		_, err := accounts.UpdateOne(ctx, bson.D{}, bson.D{}) // want `UpdateOne uses ctx and not the context of the guarded function, so it is not part of the guard's transaction`
		return err
	})
	_ = guard.Do(ctx, hold, func(guarded context.Context) error {
		_, err := accounts.InsertOne(context.Background(), bson.D{}) // want `InsertOne uses context.Background\(\) and not the context`
		return err
	})
	// Right:
	return guard.Do(ctx, hold, func(guarded context.Context) error {
		_ = accounts.FindOne(ctx, bson.D{}) // a read
		ctx, cancel := context.WithCancel(guarded)
		defer cancel()
		_, err := accounts.DeleteOne(ctx, bson.D{})
		return err
	})
}

func halves(ctx context.Context, fence holdmongo.Fence, update bson.D, amount int) {
	id := bson.D{{Key: "_id", Value: "alice"}}
	accounts.UpdateOne(ctx, fence.Filter(id), bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}}})  // want `UpdateOne compares the token and does not store it: add Fence.Mark`
	accounts.UpdateOne(ctx, bson.D{{Key: "_id", Value: "alice"}}, bson.D{{Key: "$set", Value: bson.D{fence.Mark()}}}) // want `UpdateOne stores the token and does not compare it: use Fence.Filter`
	accounts.UpdateOne(ctx, fence.Filter(id), bson.M{"$set": bson.M{"balance": amount}})                              // want `UpdateOne compares the token`
	// Right, or not known:
	accounts.UpdateOne(ctx, fence.Filter(id), bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: amount}, fence.Mark()}}})
	accounts.UpdateOne(ctx, fence.Filter(id), update)
	accounts.UpdateOne(ctx, id, bson.D{{Key: "$set", Value: bson.D{fence.Mark()}}})
	accounts.UpdateOne(ctx, fence.Filter(id), bson.D{{Key: "$set", Value: bson.D{{Key: holdmongo.FenceField, Value: int64(fence)}}}})
	accounts.UpdateOne(ctx, fence.Filter(id), bson.M{"$set": bson.M{"fence": int64(fence)}})
	mark := fence.Mark()
	accounts.UpdateOne(ctx, fence.Filter(id), bson.D{{Key: "$set", Value: bson.D{mark}}})
	accounts.DeleteOne(ctx, fence.Filter(id))
	accounts.InsertOne(ctx, bson.D{fence.Mark()})
}

func blob(ctx context.Context, token uint64) error {
	fence, err := azblob.NewFence(ctx, report.BlobClient(), token) // want `the write sends fence.Conditions and not fence.Metadata: the token is not stored`
	if err != nil {
		return err
	}
	_, err = report.UploadBuffer(ctx, text, &blockblob.UploadBufferOptions{AccessConditions: fence.Conditions})
	return err
}

func blobUnconditional(ctx context.Context, token uint64) error {
	fence, err := azblob.NewFence(ctx, report.BlobClient(), token) // want `the write sends fence.Metadata and not fence.Conditions`
	if err != nil {
		return err
	}
	_, err = report.UploadBuffer(ctx, text, &blockblob.UploadBufferOptions{Metadata: fence.Metadata})
	return err
}

func blobRight(ctx context.Context, token uint64, upload func(*azblob.Fence) error) error {
	fence, err := azblob.NewFence(ctx, report.BlobClient(), token)
	if err != nil {
		return err
	}
	_, err = report.UploadBuffer(ctx, text, &blockblob.UploadBufferOptions{AccessConditions: fence.Conditions, Metadata: fence.Metadata})
	if err != nil {
		return err
	}
	other, err := azblob.NewFence(ctx, report.BlobClient(), token)
	if err != nil {
		return err
	}
	return upload(other)
}

// Without the flag strict, a write without a fence is not reported.
func unfenced(ctx context.Context) error {
	return client.Do(ctx, "a", func(ctx context.Context) error {
		_, err := accounts.InsertOne(ctx, bson.D{})
		return err
	})
}
