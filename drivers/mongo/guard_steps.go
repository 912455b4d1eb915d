package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/driver/retry"
)

const (
	// commitWindow is how long a commit is retried while its outcome is unknown. With
	// MongoDB's default settings a new primary is elected 11 to 12 s after a crash.
	commitWindow = 15 * time.Second

	fieldCommits = "commits" // in the fence's document: the number of guarded transactions

	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
)

// attempt takes the steps of [Guard] once. again means that another attempt may succeed.
func (g *Guard) attempt(
	ctx context.Context, hold guard.Hold, lease driver.Lease, fn func(context.Context) error,
) (again bool, err error) {
	outside := mongo.NewSessionContext(ctx, nil) // outside the caller's transaction, too
	if err := g.raiseFence(outside, lease); err != nil {
		return isTransient(err), err
	}
	session, err := g.client.StartSession()
	if err != nil {
		return false, err
	}
	committing := false
	defer func() { g.endSession(ctx, session, committing) }() // also if fn panics
	if err := session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())); err != nil {
		return false, err
	}
	inside := mongo.NewSessionContext(ctx, session)
	if err := g.checkHeld(inside, lease); err != nil {
		return isTransient(err), err
	}
	if err := fn(inside); err != nil {
		return hasLabel(err, labelTransient), guard.FromFunction(err)
	}
	if !session.TransactionRunning() {
		return false, guard.ErrTransactionEnded
	}
	if err := hold.Err(); err != nil {
		return false, err
	}
	if err := g.checkHeld(outside, lease); err != nil {
		return isTransient(err), err
	}
	if err := g.writeFence(inside, lease); err != nil {
		return isTransient(err), err
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	committing = true
	return g.commit(ctx, session)
}

// raiseFence raises the fence to the lease's token.
func (g *Guard) raiseFence(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	// Promise 3: $max never lowers the fence, so it keeps the greatest token.
	fence, err := g.fences.FindOneAndUpdate(ctx, docOf(fieldName, lease.Name), docOf("$max", docOf(fieldToken, int64(lease.Token))),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
	if err != nil {
		return err
	}
	token, ok := fence.Lookup(fieldToken).Int64OK()
	switch {
	case !ok || token < int64(lease.Token):
		return &badRecordError{name: lease.Name, problem: "its token, in " + FencesCollection + ", is not a 64-bit integer"}
	case token > int64(lease.Token): // Promise 3: a later holder's token refuses this one
		return driver.Errorf("%w: its token is %d, this holder's is %d", ErrFenced, token, lease.Token)
	}
	return nil
}

// checkHeld checks that the lock's record has the lease and has not expired.
func (g *Guard) checkHeld(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	unexpired := expr("$gt", ref(fieldExpiresAt), serverNow)
	sameToken := expr("$eq", ref(fieldToken), int64(lease.Token))
	err := g.locks.FindOne(ctx, heldBy(lease, field("$expr", and(unexpired, sameToken))),
		options.FindOne().SetProjection(docOf(fieldName, 1))).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return driver.Errorf("%w: the record in %s.%s has another holder or none, or has expired",
			driver.ErrLost, g.locks.Database().Name(), g.locks.Name())
	}
	return err
}

// writeFence writes the fence's document in the transaction. The write must change something:
// the server drops a write that changes nothing, and with it the conflict.
func (g *Guard) writeFence(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	// Promise 3: this write conflicts with a later holder's raise since the snapshot, and a
	// later raise waits for the commit.
	result, err := g.fences.UpdateOne(ctx, doc{field(fieldName, lease.Name), field(fieldToken, int64(lease.Token))},
		docOf("$inc", docOf(fieldCommits, int64(1))))
	if err == nil && result.MatchedCount == 0 {
		return ErrFenced
	}
	return err
}

// commit retries the commit until its outcome is known, also after ctx has ended. A commit may
// be repeated; it is applied once.
func (g *Guard) commit(ctx context.Context, session *mongo.Session) (again bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.commitWindow)
	defer cancel()
	for n := 0; ; n++ {
		err := g.commitOnce(ctx, session)
		switch {
		case err == nil:
			return false, nil
		case hasLabel(err, labelTransient): // also for a repeat: the server does not know the transaction
			return true, err
		case n == 0 && definitelyNotCommitted(err):
			return false, err
		case ctx.Err() != nil:
			return false, driver.Errorf("%w: %w", ErrInDoubt, err)
		}
		backoff(ctx, n)
	}
}

func (g *Guard) commitOnce(ctx context.Context, session *mongo.Session) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return session.CommitTransaction(ctx)
}

// endSession aborts the transaction if it is still open, and ends the session. It does not
// abort a transaction whose commit was sent: on a sharded cluster the abort could reach
// another router while the commit is in progress.
func (g *Guard) endSession(ctx context.Context, session *mongo.Session, committing bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	defer cancel()
	if committing {
		cancel()
	}
	session.EndSession(ctx)
}

// isTransient reports whether a command of the guard failed for a temporary reason: a
// conflict, a change of the primary, a lost connection, a time limit, or the duplicate key
// error of two raises that create the same fence.
func isTransient(err error) bool {
	return hasLabel(err, labelTransient) || hasLabel(err, "RetryableWriteError") ||
		mongo.IsNetworkError(err) || mongo.IsTimeout(err) || mongo.IsDuplicateKeyError(err)
}

// definitelyNotCommitted reports whether err is the server's own answer that the transaction
// was not committed. A write concern error is no such answer: the commit was applied, but may
// not last. The Go driver labels write concern errors as unknown, except two (a write concern
// that the set does not know or cannot satisfy), and returns each as a command error.
func definitelyNotCommitted(err error) bool {
	var reply mongo.CommandError
	return errors.As(err, &reply) && !hasField(reply.Raw, "writeConcernError") &&
		!hasCode(err, codeWriteConcernTimeout, codeUnknownWriteConcern, codeShutdownInProgress, codeUnsatisfiableWriteConcern) &&
		!hasLabel(err, labelUnknown) && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err)
}

func hasLabel(err error, label string) bool {
	var labeled mongo.LabeledError
	return errors.As(err, &labeled) && labeled.HasErrorLabel(label)
}

// backoff waits between attempts, longer after each, until ctx ends.
func backoff(ctx context.Context, n int) {
	limit := retry.Delay(n, 10*time.Millisecond, 500*time.Millisecond)
	retry.Wait(ctx, limit/2+rand.N(limit/2))
}
