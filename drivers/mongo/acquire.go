package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// TryAcquire implements [driver.Locker] with one command.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := op{verb: "acquire", name: req.Name, ids: []string{req.ID.Reveal()}, invalid: req.Validate(limits)}
	return l.acquire(ctx, o, "", req)
}

// HandOver implements [driver.HandOverer] with the same single command as TryAcquire. It sends
// no event to the change streams that wait for releases, because the lock has a holder before
// and after.
func (l *Locker) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	return l.acquire(ctx, handOverOp(from, req), from.ID.Reveal(), req)
}

func handOverOp(from driver.Lease, req driver.Request) op {
	return op{
		verb: "hand over", name: req.Name, ids: []string{from.ID.Reveal(), req.ID.Reveal()},
		invalid: driver.ValidateHandOver(from, req, limits),
	}
}

// acquire grants the lock if it is free, or if the lease with the ID from holds it.
func (l *Locker) acquire(ctx context.Context, o op, from string, req driver.Request) (driver.Lease, error) {
	var lease driver.Lease
	err := l.do(ctx, o, func(ctx context.Context) error {
		pipeline := acquirePipeline(from, req)
		r, err := l.apply(ctx, req.Name, pipeline)
		if mongo.IsDuplicateKeyError(err) {
			// Two upserts can collide where there was no document. The server repeats one of
			// them itself, but documents cases in which it does not.
			r, err = l.apply(ctx, req.Name, pipeline)
		}
		if err != nil {
			return err
		}
		if r.leaseID != req.ID.Reveal() || r.broken {
			return &driver.HeldError{Record: r.describe()}
		}
		lease = driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: uint64(r.token), TTL: req.TTL}
		return nil
	})
	return lease, err
}

// apply runs an acquire's pipeline and returns the resulting document.
func (l *Locker) apply(ctx context.Context, name string, pipeline list) (*record, error) {
	raw, err := l.majority.FindOneAndUpdate(ctx, docOf(fieldName, name), pipeline,
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(withoutData)).Raw()
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(raw)
	if err != nil {
		return nil, err
	}
	if r.leaseID == "" {
		return nil, &badRecordError{name: name, problem: "an acquire neither took the lock nor found it held"}
	}
	return r, nil
}
