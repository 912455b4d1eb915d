package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// openForReading makes a Locker for a user who may only read: it sends no trial acquire, and makes no
// index, and so no collection.
func openForReading(ctx context.Context, rawURL string) (driver.Locker, error) {
	l, err := connect(rawURL, nil)
	if err != nil {
		return nil, err
	}
	l.forReading = true
	return l.beginOrDisconnect(ctx)
}

// MissingStore says which collection does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	var found []mongo.CollectionSpecification
	err := l.do(ctx, op{verb: "look for the collection"}, func(ctx context.Context) (err error) {
		found, err = l.majority.Database().ListCollectionSpecifications(ctx, docOf("name", l.majority.Name()))
		return err
	})
	switch {
	case hasCode(err, codeUnauthorized): // the user may only use the collection itself
		return "", nil
	case err != nil || len(found) > 0:
		return "", err
	}
	return "the collection " + l.namespace(), nil
}
