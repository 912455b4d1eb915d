package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// sendOnce runs a command that writes, without the number by which the server would recognize its
// repetition, and returns the reply. With such a number every member of a replica set writes a record of
// the command, and of a findAndModify a copy of the document as well. The request of the waiter that the
// command wakes would have to wait for that: a change of holder between two processes takes 1.47 × an acquire and a
// release then, and 1.34 × in this way (three rounds of 100 of BenchmarkHandOver each, interleaved).
//
// Only a command that may take effect twice, or late, is sent in this way. After an error the caller
// sends it by the Go driver's own method, which repeats it if the connection is lost or the primary
// changes; see worthRepeating.
func sendOnce(ctx context.Context, coll *mongo.Collection, verb string, rest ...bson.E) (bson.Raw, error) {
	// Encoded here, since a database has the program's own encoders; see majorityOptions.
	command, err := bson.Marshal(append(append(docOf(verb, coll.Name()), rest...), field("writeConcern", docOf("w", 1))))
	if err != nil {
		return nil, err
	}
	return coll.Database().RunCommand(ctx, bson.Raw(command)).Raw()
}

// worthRepeating reports whether to send a command again after an error of sendOnce.
func worthRepeating(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !isPermanent(err)
}
