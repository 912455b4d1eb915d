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

// polledPosition is how long a waiter that no hint wakes keeps its position without another request: longer than
// the longest usual poll interval, 15 s and 20 %, since it would come last again at each request otherwise.
const polledPosition = 20 * time.Second

// TryAcquire implements [driver.Locker] with one command. A request of a waiter enters the queue if it is refused.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := op{verb: "acquire", name: req.Name, ids: []string{req.ID.Reveal()}, invalid: req.Validate(l.Info())}
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
		// The Go driver repeats a command until the context's deadline, and returns the error of an earlier try if no server is
		// there for a later one. So this command was not sent at all.
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

// acquirePipeline decides on the server, at one instant of its clock, whether the lock is
// granted. If not, the document stays as it is, but for the queue. who is the Locker in queues; if it has no ID, a lock
// with a queue is refused, since few locks have one, and their rules take the server longer. keep is
// how many past holders a grant keeps.
//
// The condition cannot be in the filter: an upsert whose filter does not match the existing
// document tries to insert a second one, and the server refuses $expr in the filter of an
// upsert.
//
// Every value of the caller's is the $literal value of a variable; otherwise the owner "$kid"
// would name a field. The rest is the same for every request and is encoded only once:
// encoding it took as long as the server takes for the grant.
func acquirePipeline(who asker, req driver.Request, keep int) list {
	variables := doc{
		field(varID, literal(req.ID.Reveal())), field(varOwner, literal(req.Owner)), field(varTTL, req.TTL.Milliseconds()),
		field(varKeep, -keep),
	}
	var v acquireVariant
	if v.data = req.Data != nil; v.data {
		variables = append(variables, field(varData, literal(binary(req.Data))))
	}
	v.shared = req.Mode == driver.Shared
	v.readers = v.shared || who.amongReaders
	replaced, ok := replacedBy(req.Replace, v.readers)
	// A writer that replaces itself repeats its request.
	if v.replace = ok && (v.shared || replaced[0] != req.ID.Reveal()); v.replace {
		variables = append(variables, field(varReplaced, literal(replaced)))
	}
	if v.queue = who.id != "" || v.readers; v.queue {
		polls := any(removeField)
		if who.polls {
			polls = true
		}
		variables = append(variables, field(varMe, who.id), field(varPolls, polls), field(varQueueFor, req.QueueFor.Milliseconds()))
	}
	return list{docOf("$replaceWith", docOf("$let", doc{{Key: "vars", Value: variables}, {Key: "in", Value: acquireExpressions[v]}}))}
}

// asker is a Locker as the queue of a lock sees it.
type asker struct {
	id           string
	polls        bool // no hint wakes it
	amongReaders bool // the last grant of the lock was to a reader
}

var acquireExpressions = allAcquireExpressions()

func allAcquireExpressions() map[acquireVariant]bson.Raw {
	all := map[acquireVariant]bson.Raw{}
	for n := range 8 {
		v := acquireVariant{data: n&1 != 0, replace: n&2 != 0, queue: n&4 != 0}
		all[v] = acquireExpression(v)
	}
	for n := range 8 {
		v := acquireVariant{data: n&1 != 0, replace: n&2 != 0, queue: true, readers: true, shared: n&4 != 0}
		if !v.data || !v.shared {
			all[v] = mustMarshal(acquireAmongReaders(v))
		}
	}
	return all
}
