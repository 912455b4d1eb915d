package mongo

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// TryAcquire implements [driver.Locker] with one command.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := op{verb: "acquire", name: req.Name, ids: []string{req.ID.Reveal()}, invalid: req.Validate(l.Info())}
	return l.acquire(ctx, o, req)
}

// polledPosition is how long a waiter that no hint wakes keeps its position without another request: longer than
// the longest usual poll interval, 15 s and 20 %, since it would come last again at each request otherwise.
const polledPosition = 20 * time.Second

// acquire grants the lock if it is free. A request of a waiter enters the queue if it is refused.
func (l *Locker) acquire(ctx context.Context, o op, req driver.Request) (driver.Lease, error) {
	var lease driver.Lease
	waits := req.QueueFor > 0
	queued := waits && l.queue != nil && l.queue.usable()
	who, me := asker{}, placeOf(l.id, req.Waiter)
	if waits || req.Mode == driver.Shared {
		who = asker{id: me, polls: waits && !queued}
	}
	if who.polls {
		req.QueueFor = min(req.QueueFor, polledPosition)
	}
	err := l.do(ctx, o, func(ctx context.Context) error {
		r, err := l.apply(ctx, req, who)
		switch exclusive := req.Mode == driver.Exclusive; {
		case err != nil:
			return err
		case exclusive && r.version == sharedVersion && (waits || r.free() || !req.Replace.IsZero()):
			who.id, who.amongReaders = cmp.Or(me, l.id), true
			r, err = l.apply(ctx, req, who)
		case exclusive && !waits && r.leaseID != req.ID.Reveal() && r.reserve > 0 && r.free():
			r, err = l.apply(ctx, req, asker{id: cmp.Or(me, l.id)}) // the waiter may be the first in the queue
		}
		if err != nil {
			return err
		}
		granted, ok := r.granted(req)
		if !ok {
			return r.refusal()
		}
		lease = granted
		return nil
	})
	return lease, err
}

// apply runs an acquire's pipeline and returns the resulting document. Two upserts can collide where
// there was no document. The server repeats one of them itself, but documents cases in which it
// does not.
func (l *Locker) apply(ctx context.Context, req driver.Request, who asker) (*record, error) {
	projection := withoutData
	switch {
	case req.Mode == driver.Shared:
		projection = mustMarshal(slices.Concat(readerFields(req.ID), queueProjection(who.id), readerTurn(who.id)))
	case who.amongReaders:
		projection = mustMarshal(slices.Concat(fieldsWithoutData, doc{readersDamaged}, queueProjection(who.id)))
	case who.id != "":
		projection = l.seen.by(who.id)
	}
	pipeline := acquirePipeline(who, req, l.config.history)
	update := func() (bson.Raw, error) {
		return l.majority.FindOneAndUpdate(ctx, docOf(fieldName, req.Name), pipeline,
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(projection)).Raw()
	}
	raw, err := update()
	if unreachable(err) != nil {
		// The Go driver repeats a command once, and returns the error of the first try if no server is there for the second
		// one. So this command was not sent at all.
		return nil, &unsentError{err}
	}
	if mongo.IsDuplicateKeyError(err) {
		raw, err = update()
	}
	// If the Go driver has repeated a request that was applied, the answer is the stored document, without what the projection
	// computes. Promise 5: the same ID again changes nothing but the time of the lease.
	if _, lacks := raw.LookupErr(fieldNow); err == nil && lacks != nil {
		raw, err = update()
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(raw)
	var bad *badRecordError
	if errors.As(err, &bad) {
		bad.inDoubt = hasLeaseID(raw, req.ID) // Promise 5: a lock that the command may have granted is released
	}
	if err != nil {
		return nil, err
	}
	asksAgain := r.version == sharedVersion && req.Mode == driver.Exclusive && !who.amongReaders
	if r.leaseID == "" && r.reserve == 0 && r.waiters == 0 && !asksAgain {
		return nil, &badRecordError{name: req.Name, problem: "an acquire neither took the lock nor found it held"}
	}
	return r, nil
}
