package mongo

import (
	"context"
	"time"

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

// acquire grants the lock if it is free, or if the lease with the ID from holds it. A request of a
// waiter enters the queue if it is refused.
func (l *Locker) acquire(ctx context.Context, o op, from string, req driver.Request) (driver.Lease, error) {
	var lease driver.Lease
	queued := req.QueueFor > 0 && l.queue != nil && l.queue.watcher.usable()
	if !queued {
		req.QueueFor = 0
	}
	err := l.do(ctx, o, func(ctx context.Context) error {
		asked := time.Now()
		var e *entry
		if queued {
			e = l.queue.noteRequest(req.Name, asked)
		}
		r, err := l.apply(ctx, from, req, queued)
		if err == nil && !queued && r.leaseID != req.ID.Reveal() && r.free() {
			r, err = l.apply(ctx, from, req, true) // there is a queue
		}
		if err != nil {
			return err
		}
		granted := r.leaseID == req.ID.Reveal() && !r.broken
		if queued { // no other reply shows the position
			l.queue.noteReply(req.Name, e, asked, granted, int(r.position))
		}
		if !granted {
			return r.refusal()
		}
		lease = driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: uint64(r.token), TTL: req.TTL, Contended: r.reserve > 0}
		return nil
	})
	return lease, err
}

// apply runs an acquire's pipeline and returns the resulting document. Two upserts can collide where
// there was no document. The server repeats one of them itself, but documents cases in which it
// does not.
func (l *Locker) apply(ctx context.Context, from string, req driver.Request, queued bool) (*record, error) {
	me, projection := "", withoutData
	if queued {
		me, projection = l.id, l.seen.withoutData
	}
	pipeline := acquirePipeline(from, me, req, l.config.history)
	update := func() (bson.Raw, error) {
		return l.majority.FindOneAndUpdate(ctx, docOf(fieldName, req.Name), pipeline,
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(projection)).Raw()
	}
	raw, err := update()
	if mongo.IsDuplicateKeyError(err) {
		raw, err = update()
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(raw)
	if err != nil {
		return nil, err
	}
	if r.leaseID == "" && r.reserve == 0 {
		return nil, &badRecordError{name: req.Name, problem: "an acquire neither took the lock nor found it held"}
	}
	return r, nil
}
