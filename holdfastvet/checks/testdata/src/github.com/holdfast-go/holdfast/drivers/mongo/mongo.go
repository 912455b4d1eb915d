package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/guard"
)

const FenceField = "fence"

type (
	Guard struct{}
	Fence uint64
)

func NewGuard(locks holdfast.Locker, db *mongo.Database) (*Guard, error) { return nil, nil }
func (g *Guard) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context) error) error {
	return nil
}
func (f Fence) Filter(filter bson.D) bson.D { return nil }
func (f Fence) Mark() bson.E                { return bson.E{} }
