package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// commitWindow is for how long a commit is asked for again while its outcome
	// is unknown. With MongoDB's default settings the successor of a primary that
	// crashed is there after 11 to 12 s.
	commitWindow = 15 * time.Second

	fieldCommits = "commits" // of a fence: how many guarded transactions

	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
)

var errTransactionEnded = errors.New("the function ended the transaction that it was run in")

// attempt takes the steps of [Guard] once. again says that another attempt may
// succeed.
func (g *Guard) attempt(ctx context.Context, hold Hold, fn func(context.Context) error) (again bool, err error) {
	lease := hold.Lease()
	outside := mongo.NewSessionContext(ctx, nil) // also of a transaction of the caller's
	if err := g.raise(outside, lease); err != nil {
		return passing(err), err
	}
	session, err := g.client.StartSession()
	if err != nil {
		return false, err
	}
	committing := false
	defer func() { g.end(ctx, session, committing) }() // also if fn panics
	if err := session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())); err != nil {
		return false, err
	}
	inside := mongo.NewSessionContext(ctx, session)
	if err := g.look(inside, lease); err != nil {
		return passing(err), err
	}
	if err := fn(inside); err != nil {
		return hasLabel(err, labelTransient), &fnError{err}
	}
	if !session.TransactionRunning() {
		return false, errTransactionEnded
	}
	if err := hold.Err(); err != nil {
		return false, err
	}
	if err := g.look(outside, lease); err != nil {
		return passing(err), err
	}
	if err := g.mark(inside, lease); err != nil {
		return passing(err), err
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	committing = true
	return g.commit(ctx, session)
}

// raise brings the fence up to the lease's token. It never lowers it.
func (g *Guard) raise(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	fence, err := g.fences.FindOneAndUpdate(ctx, is(fieldName, lease.Name), is("$max", is(fieldToken, int64(lease.Token))),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
	if err != nil {
		return err
	}
	token, ok := fence.Lookup(fieldToken).Int64OK()
	switch {
	case !ok || token < int64(lease.Token):
		return &badRecordError{name: lease.Name, why: "its token, in " + FencesCollection + ", is no 64-bit integer"}
	case token > int64(lease.Token):
		return fmt.Errorf("%w: to token %d, and this one has %d", ErrFenced, token, lease.Token)
	}
	return nil
}

// look checks that the lock's record names the lease and has not expired.
func (g *Guard) look(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	unexpired := call("$gt", ref(fieldExpiresAt), serverNow)
	sameToken := call("$eq", ref(fieldToken), int64(lease.Token))
	err := g.locks.FindOne(ctx, heldBy(lease, field("$expr", and(unexpired, sameToken))),
		options.FindOne().SetProjection(is(fieldName, 1))).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("%w: its record in %s.%s names another holder or none, or has expired",
			driver.ErrLost, g.locks.Database().Name(), g.locks.Name())
	}
	return err
}

// mark writes the fence's document, so that a raise since the transaction's
// snapshot is a conflict, and one to come waits. The write must change something:
// the server drops one that does not, and with it the conflict.
func (g *Guard) mark(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	result, err := g.fences.UpdateOne(ctx, doc{field(fieldName, lease.Name), field(fieldToken, int64(lease.Token))},
		is("$inc", is(fieldCommits, int64(1))))
	if err == nil && result.MatchedCount == 0 {
		return ErrFenced
	}
	return err
}

// commit asks for the commit until it knows the outcome, whatever becomes of ctx:
// a commit may be repeated, and is applied once.
func (g *Guard) commit(ctx context.Context, session *mongo.Session) (again bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.window)
	defer cancel()
	for n := 0; ; n++ {
		err := g.tryCommit(ctx, session)
		switch {
		case err == nil:
			return false, nil
		case hasLabel(err, labelTransient): // also of a repetition: the server knows of no such transaction
			return true, err
		case n == 0 && definite(err):
			return false, err
		case ctx.Err() != nil:
			return false, fmt.Errorf("%w: %w", ErrInDoubt, err)
		}
		pause(ctx, n)
	}
}

func (g *Guard) tryCommit(ctx context.Context, session *mongo.Session) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return session.CommitTransaction(ctx)
}

// end aborts the transaction if it is still open, and gives the session back. It
// does not abort what was sent to be committed: through another router of a
// sharded cluster an abort could meet the commit half-way.
func (g *Guard) end(ctx context.Context, session *mongo.Session, committing bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	defer cancel()
	if committing {
		cancel()
	}
	session.EndSession(ctx)
}

// passing reports whether a command of the guard failed for a reason that may
// pass: a conflict, a change of the primary, a lost connection, a time limit. Two
// raises of a fence that is new may meet in a duplicate key.
func passing(err error) bool {
	return hasLabel(err, labelTransient) || hasLabel(err, "RetryableWriteError") ||
		mongo.IsNetworkError(err) || mongo.IsTimeout(err) || mongo.IsDuplicateKeyError(err)
}

// definite reports whether err is the server's own answer that it has not
// committed. A write concern error is none: the commit was applied, and is not
// known to last. The driver labels those as unknown but for two, a write concern
// that the set does not know or cannot satisfy, and it makes a command's error of
// each.
func definite(err error) bool {
	var reply mongo.CommandError
	return errors.As(err, &reply) && !has(reply.Raw, "writeConcernError") &&
		!hasCode(err, codeWriteConcernTimeout, codeUnknownWriteConcern, codeShutdownInProgress, codeUnsatisfiableWriteConcern) &&
		!hasLabel(err, labelUnknown) && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err)
}

func hasLabel(err error, label string) bool {
	var labeled mongo.LabeledError
	return errors.As(err, &labeled) && labeled.HasErrorLabel(label)
}

// pause waits between attempts, longer each time, until ctx ends.
func pause(ctx context.Context, n int) {
	most := min(10*time.Millisecond<<min(n, 10), 500*time.Millisecond)
	select {
	case <-time.After(most/2 + rand.N(most/2)):
	case <-ctx.Done():
	}
}
