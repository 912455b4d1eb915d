package mongolock

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// Codes of server errors.
const (
	codeUnauthorized      = 13
	codeNamespaceNotFound = 26
)

// checkIndexes refuses a collection with a TTL index that removes documents of held locks. It asks the
// server until one answer was good. A user without the right to list indexes is no error.
//
// Promise 1: a renewal moves Until alone. An index on another field, such as At, would remove the document
// of a lock that is held for long, and the next program would take it.
func (l *Lock) checkIndexes(ctx context.Context) error {
	if l.checked.Load() {
		return nil
	}
	specs, err := l.collection.Indexes().ListSpecifications(ctx)
	var server mongo.ServerError
	expected := errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeNamespaceNotFound))
	if err != nil && !expected {
		return l.failed(err)
	}
	for _, spec := range specs {
		if field := soleField(spec.KeysDocument); spec.ExpireAfterSeconds != nil && field != "" && field != l.schema.Until {
			return driver.Invalid("TTL index "+spec.Name+" of "+l.collection.Database().Name()+"."+l.collection.Name(),
				"on "+driver.Quote(field), "dropped, or on "+l.schema.Until+": it would remove locks that are held")
		}
	}
	l.checked.Store(true)
	return nil
}

// soleField returns the field of an index on one field. The server expires documents by such indexes only.
func soleField(key bson.Raw) string {
	elements, err := key.Elements()
	if err != nil || len(elements) != 1 {
		return ""
	}
	return elements[0].Key()
}
