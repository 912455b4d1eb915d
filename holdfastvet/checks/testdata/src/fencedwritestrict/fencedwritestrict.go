package fencedwritestrict

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

func writes(ctx context.Context, client *holdfast.Client, accounts *mongo.Collection, report *blockblob.Client,
	guard *holdmongo.Guard) error {
	_, _ = accounts.InsertOne(ctx, bson.D{}) // under no lock
	return client.Do(ctx, "a", func(ctx context.Context) error {
		accounts.UpdateOne(ctx, bson.D{}, bson.D{})                     // want `accounts.UpdateOne is not fenced: a holder that was paused can overwrite what a later one wrote`
		report.UploadBuffer(ctx, nil, &blockblob.UploadBufferOptions{}) // want `report.UploadBuffer is not fenced`
		_ = accounts.FindOne(ctx, bson.D{})
		token, _ := holdfast.TokenFromContext(ctx)
		fence := holdmongo.Fence(token)
		accounts.UpdateOne(ctx, fence.Filter(bson.D{}), bson.D{{Key: "$set", Value: bson.D{fence.Mark()}}})
		accounts.InsertOne(ctx, bson.D{{Key: "by", Value: int64(token)}})
		hold, _ := holdfast.HoldFromContext(ctx)
		report.UploadBuffer(ctx, nil, &blockblob.UploadBufferOptions{AccessConditions: azblob.Conditions(hold.Lease())})
		return guard.Do(ctx, hold, func(ctx context.Context) error {
			_, err := accounts.UpdateOne(ctx, bson.D{}, bson.D{})
			return err
		})
	})
}
