package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/guard"
)

// Beside the collection of [apart] are those that writeGuarded uses, whose names end with these.
const (
	fencesApart  = "_fences"
	writtenApart = "_written"
)

// apart returns the URL of a collection of its own.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	own = driverutil.WithParam(rawURL, paramCollection, name)
	return own, func(ctx context.Context) error { return drop(ctx, own) }
}

// drop removes the collection of a URL, and those beside it.
func drop(ctx context.Context, rawURL string) error {
	l, err := connect(rawURL, nil)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	names := []string{l.majority.Name(), l.majority.Name() + fencesApart, l.majority.Name() + writtenApart}
	for n := range int64(hintsCollections) {
		names = append(names, l.hints.nameOf(n))
	}
	return l.do(ctx, op{verb: "remove"}, func(ctx context.Context) (err error) {
		for _, name := range names {
			err = errors.Join(err, l.majority.Database().Collection(name, majorityOptions()).Drop(ctx))
		}
		return err
	})
}

// writeGuarded implements [driver.Description.WriteGuarded].
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	if l.standalone {
		return "", driver.Errorf("a standalone server has no transactions: %w", errors.ErrUnsupported)
	}
	db := l.majority.Database()
	g := newGuard(l.majority, db, l.config.timeout)
	g.fences = db.Collection(l.majority.Name() + fencesApart).Clone(majorityOptions())
	written := db.Collection(l.majority.Name() + writtenApart)
	err = g.Do(ctx, guard.Unnoticed(ctx, lease), func(ctx context.Context) error {
		var found struct {
			Value string `bson:"value"`
		}
		err := written.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: lease.Name}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "value", Value: value}}}}, options.FindOneAndUpdate().SetUpsert(true)).Decode(&found)
		if errors.Is(err, mongo.ErrNoDocuments) { // it is the first
			err = nil
		}
		before = found.Value
		return err
	})
	return before, err
}
