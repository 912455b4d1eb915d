package baseline

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Pessimistic is the "pessimistic lock" on MongoDB that articles describe: one document
// with a well-known _id. An upsert for the holder's key acquires it, and fails with a duplicate
// key while another holder has it. An update renews it, a delete releases it. Only a TTL index
// removes the document of a crashed holder; the server's thread for that runs once a minute.
type Pessimistic struct {
	coll *mongo.Collection
	name string
	ttl  time.Duration
}

// NewPessimistic creates the TTL index. The collection must have no other use.
func NewPessimistic(ctx context.Context, coll *mongo.Collection, name string, ttl time.Duration) (*Pessimistic, error) {
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "expiresAt", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0),
	})
	majority := coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	return &Pessimistic{majority, name, ttl}, err
}

// Try implements [Lock].
func (p *Pessimistic) Try(ctx context.Context, id string) (bool, error) {
	_, err := p.coll.UpdateOne(ctx, p.mine(id), p.extended(), options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return false, nil
	}
	return err == nil, err
}

// Renew reports whether the holder with this ID still has the lock.
func (p *Pessimistic) Renew(ctx context.Context, id string) (bool, error) {
	res, err := p.coll.UpdateOne(ctx, p.mine(id), p.extended())
	return err == nil && res.MatchedCount == 1, err
}

// Release implements [Lock].
func (p *Pessimistic) Release(ctx context.Context, id string) error {
	_, err := p.coll.DeleteOne(ctx, p.mine(id))
	return err
}

func (p *Pessimistic) mine(id string) bson.D {
	return bson.D{{Key: "_id", Value: p.name}, {Key: "key", Value: id}}
}

// extended uses the client's clock, as the articles do.
func (p *Pessimistic) extended() bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: time.Now().Add(p.ttl)}}}}
}
