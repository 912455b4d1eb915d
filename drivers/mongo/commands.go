package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
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

// majorityOptions replaces the program's registry, concerns and read preference, which do not
// apply to locks.
func majorityOptions() *options.CollectionOptionsBuilder {
	return options.Collection().SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{}).
		// Promise 1: a grant that a majority acknowledged survives a fail-over.
		// Promise 3: so does its token.
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
}

// acknowledgedByPrimary are the options of writes that need not be certain yet.
func acknowledgedByPrimary() *options.CollectionOptionsBuilder {
	return options.Collection().SetWriteConcern(writeconcern.W1())
}

// readRecord reads the record of a name, which is nil if there is none, and returns the reply as well.
func readRecord(ctx context.Context, coll *mongo.Collection, name string, projection bson.Raw) (bson.Raw, *record, error) {
	raw, err := coll.FindOne(ctx, docOf(fieldName, name), options.FindOne().SetProjection(projection)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := decodeRecord(raw)
	return raw, r, err
}

// findAll reads all documents that a filter matches.
func findAll(ctx context.Context, coll *mongo.Collection, filter any, opts *options.FindOptionsBuilder) (all []bson.Raw, err error) {
	cursor, err := coll.Find(ctx, filter, opts)
	if err != nil {
		return nil, err
	}
	err = cursor.All(ctx, &all)
	return all, err
}

// adminCommand runs a command of the database admin on the primary.
func adminCommand(ctx context.Context, client *mongo.Client, command doc) (bson.Raw, error) {
	return client.Database("admin").RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
}

func hello(ctx context.Context, client *mongo.Client, more ...bson.E) (bson.Raw, error) {
	return adminCommand(ctx, client, append(docOf("hello", 1), more...))
}
