package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// streamAwait is how long the server holds a request for events. It is the server's default, and
// shorter than a renewal's time limit: with maxPoolSize=1 the stream occupies the only connection.
const streamAwait = time.Second

// streamSource is a change stream of the collection. Every stream reads the server's whole oplog.
// The collection must have read concern "majority" and read preference primary.
func streamSource(coll *mongo.Collection) source {
	return source{
		what: "change stream",
		open: func(ctx context.Context) (eventCursor, error) {
			stream, err := coll.Watch(ctx, releasePipeline(), options.ChangeStream().SetMaxAwaitTime(streamAwait))
			if err != nil {
				return nil, err
			}
			return streamCursor{stream}, nil
		},
		// Events of the whole collection have no name. They end the stream, and reopening it wakes
		// every waiter.
		read: func(event bson.Raw) (name string, turn time.Duration, ok bool) {
			name, ok = event.Lookup("documentKey", "_id").StringValueOK()
			return name, 0, ok
		},
	}
}

type streamCursor struct{ *mongo.ChangeStream }

func (c streamCursor) event() bson.Raw { return c.Current }

func (c streamCursor) TryNext(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.ChangeStream.TryNext(ctx)
}

// releasePipeline selects the events after which a lock may be free: the kid was removed, the
// lock was broken, or the record or the whole collection was removed. The server filters out
// grants and renewals. A release is an update event or, if that is shorter to log, a
// replacement. Only the record's name is transferred.
func releasePipeline() mongo.Pipeline {
	const update = "updateDescription."
	return mongo.Pipeline{
		docOf("$match", or(
			docOf("operationType", docOf("$nin", list{"insert", "update", "replace"})),
			docOf(update+"removedFields", fieldKid),
			docOf(update+"updatedFields."+fieldBroken, true),
			doc{field("operationType", "replace"), field("fullDocument."+fieldKid, docOf("$exists", false))},
		)),
		docOf("$project", docOf("documentKey._id", 1)),
	}
}
