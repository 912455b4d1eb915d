package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// TryAcquire implements [driver.Locker] with one command.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := op{verb: "acquire", name: req.Name, ids: []string{req.ID.Reveal()}, invalid: req.Validate(limits)}
	return l.acquire(ctx, o, "", req)
}

// HandOver implements [driver.HandOverer] with one command, TryAcquire's. To a change
// stream that waits for releases it is no event: the lock has a holder before and after.
func (l *Locker) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	return l.acquire(ctx, handOverOp(from, req), from.ID.Reveal(), req)
}

func handOverOp(from driver.Lease, req driver.Request) op {
	return op{
		verb: "hand over", name: req.Name, ids: []string{from.ID.Reveal(), req.ID.Reveal()},
		invalid: driver.ValidateHandOver(from, req, limits),
	}
}

// acquire grants the lock if it is free, or if the lease with the ID from has it.
func (l *Locker) acquire(ctx context.Context, o op, from string, req driver.Request) (driver.Lease, error) {
	var lease driver.Lease
	err := l.do(ctx, o, func(ctx context.Context) error {
		pipeline := acquirePipeline(from, req)
		r, err := l.apply(ctx, req.Name, pipeline)
		if mongo.IsDuplicateKeyError(err) {
			// Two upserts met where there was no document. The server repeats that
			// by itself, but documents cases in which it does not.
			r, err = l.apply(ctx, req.Name, pipeline)
		}
		if err != nil {
			return err
		}
		if r.kid != req.ID.Reveal() || r.broken {
			return &driver.HeldError{Record: r.describe()}
		}
		lease = driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: uint64(r.token), TTL: req.TTL}
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

// Inspect implements [driver.Locker]. It tells what a majority of the servers
// has.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name, State: driver.StateFree}
	o := op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits)}
	err := l.do(ctx, o, func(ctx context.Context) error {
		r, err := read(ctx, l.writes, name, everything)
		if r != nil {
			out = r.describe()
		}
		return err
	})
	if err != nil {
		return driver.Record{}, err
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
