package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// streamAwait is how long the server holds a request for events. It is the server's default.
const streamAwait = time.Second

// streamSource is a change stream of the collection. Every stream reads the server's whole oplog.
// The collection must have read concern "majority" and read preference primary.
func streamSource(coll *mongo.Collection) source {
	return source{
		what:  "change stream",
		await: streamAwait,
		open: func(ctx context.Context) (eventCursor, error) {
			stream, err := coll.Watch(ctx, releasePipeline(), options.ChangeStream().SetMaxAwaitTime(streamAwait))
			if err != nil {
				return nil, err
			}
			return streamCursor{stream}, nil
		},
		// Events of the whole collection have no name. They end the stream, and reopening it wakes
		// every waiter.
		read: func(event bson.Raw) (key waitqueue.Key, after time.Duration, ok bool) {
			key.Name, ok = event.Lookup("documentKey", "_id").StringValueOK()
			return key, 0, ok
		},
	}
}

type streamCursor struct{ *mongo.ChangeStream }

func (c streamCursor) event() bson.Raw { return c.Current }

// releasePipeline selects the events after which a lock may be free: the lease ID was removed,
// the lock was broken, or the record or the whole collection was removed. The server filters out
// grants and renewals. A release is an update event or, if that is shorter to log, a
// replacement. Only the record's name is transferred.
func releasePipeline() mongo.Pipeline {
	const update = "updateDescription."
	return mongo.Pipeline{
		docOf("$match", or(
			docOf("operationType", docOf("$nin", list{"insert", "update", "replace"})),
			docOf(update+"removedFields", fieldLeaseID),
			docOf(update+"updatedFields."+fieldBroken, true),
			doc{field("operationType", "replace"), field("fullDocument."+fieldLeaseID, docOf("$exists", false))},
		)),
		docOf("$project", docOf("documentKey._id", 1)),
	}
}
