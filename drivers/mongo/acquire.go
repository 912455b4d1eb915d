package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
)

// TryAcquire implements [holdfast.Locker] with one command.
func (l *Locker) TryAcquire(ctx context.Context, req holdfast.Request) (holdfast.Lease, error) {
	var lease holdfast.Lease
	o := op{verb: "acquire", name: req.Name, ids: []string{req.ID}, invalid: req.Validate(limits)}
	err := l.do(ctx, o, func(ctx context.Context) error {
		pipeline := acquirePipeline(req)
		r, err := l.apply(ctx, req.Name, pipeline)
		if mongo.IsDuplicateKeyError(err) {
			// Two upserts met where there was no document. The server repeats that
			// by itself, but documents cases in which it does not.
			r, err = l.apply(ctx, req.Name, pipeline)
		}
		if err != nil {
			return err
		}
		if r.kid != req.ID || r.broken {
			return &holdfast.HeldError{Record: r.describe()}
		}
		lease = holdfast.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: uint64(r.token), TTL: req.TTL}
		return nil
	})
	return lease, err
}

// apply runs an acquire's pipeline and returns the document that it left.
func (l *Locker) apply(ctx context.Context, name string, pipeline list) (*record, error) {
	raw, err := l.writes.FindOneAndUpdate(ctx, is(fieldName, name), pipeline,
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(facts)).Raw()
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(raw)
	if err != nil {
		return nil, err
	}
	if r.kid == "" {
		return nil, &badRecordError{name: name, why: "an acquire neither took it nor found it held"}
	}
	return r, nil
}

// Inspect implements [holdfast.Locker]. It tells what a majority of the servers
// has.
func (l *Locker) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	out := holdfast.Record{Name: name, State: holdfast.StateFree}
	o := op{verb: "inspect", name: name, invalid: holdfast.ValidateName(name, limits)}
	err := l.do(ctx, o, func(ctx context.Context) error {
		r, err := read(ctx, l.writes, name, everything)
		if r != nil {
			out = r.describe()
		}
		return err
	})
	if err != nil {
		return holdfast.Record{}, err
	}
	return out, nil
}

// read returns a name's document, nil if there is none.
func read(ctx context.Context, coll *mongo.Collection, name string, projection bson.Raw) (*record, error) {
	raw, err := coll.FindOne(ctx, is(fieldName, name), options.FindOne().SetProjection(projection)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeRecord(raw)
}
