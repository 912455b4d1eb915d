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

// FencesCollection is the collection in the guarded database where a [Guard] stores the
// greatest token that it has seen of each lock: {_id: <lock>, token, commits}. There is one
// small document for each lock, which is never removed. You may delete a document if no guard
// uses it and all earlier holders have surely ended.
const FencesCollection = "holdfast_fences"

// ErrFenced says that a later holder of the lock has used the guard. It also matches driver.ErrLost,
// since the lease must have ended.
var ErrFenced = guard.ErrFenced

// ErrInDoubt says that the commit of a transaction was sent, and no answer says what became of it.
// It was applied as a whole or not at all.
var ErrInDoubt = guard.ErrInDoubt

var guards = guard.Kind{Backend: backend, Method: "guard", Limits: limits}

// guardRetryTime is how long Do repeats a transaction that conflicts, or whose server fails.
// MongoDB's own drivers use the same time.
const guardRetryTime = 2 * time.Minute

// commitWindow is how long a commit is retried while its outcome is unknown. With
// MongoDB's default settings a new primary is elected 11 to 12 s after a crash.
const commitWindow = 15 * time.Second

// Guard runs the writes of a lock's holder in transactions that the server refuses once a
// later holder has used the guard. It protects against a process that was paused and continues
// after its lease without noticing. It is safe for concurrent use.
//
// [Guard.Do] takes these steps. The fence is the lock's document in [FencesCollection].
//
//  1. Raise the fence to the hold's token; refuse if it is higher already.
//  2. Begin a transaction and read the lock's record in it; refuse unless it has this lease,
//     unexpired by the server's clock.
//  3. Run the function.
//  4. Read the lock's record again, outside the transaction, with the check of step 2.
//  5. Write the fence's document in the transaction.
//  6. Commit.
//
// Let A be the older holder and B the later. These are all the ways in which they can meet:
//
//   - B raises the fence before A begins: step 1 refuses A.
//   - B raises it between A's steps 2 and 5: step 5 conflicts with that write, the server
//     aborts A's transaction, and step 1 refuses A's next attempt.
//   - B raises it after A's step 5: B waits in step 1 until A has committed or aborted. A's
//     writes come first, and B's function sees them.
//   - B was granted the lock but has not used the guard yet: steps 2 and 4 refuse A. If the
//     grant comes after A's step 4, A may commit, but only before B's step 1, so B's function
//     sees all of it.
//   - A's lease was released, broken with BreakNow, or expired, and nobody follows: steps 2
//     and 4 refuse A.
//
// So the guarded functions of one lock commit in the order of their tokens. Each reads what
// all earlier ones wrote, in one snapshot that was taken while the lease was valid. The guard
// does not refuse writes that do not use it, and it does not protect what B did before its
// step 1 on the basis of unguarded reads. The program must avoid both.
//
// Step 1 is outside the transaction, and step 5 comes last, because other writers of the same
// document wait for an open transaction: a holder that is paused inside its function must not
// delay the next. It can delay it between steps 5 and 6, for one round trip. If it is paused
// there, the server aborts the transaction after transactionLifetimeLimitSeconds (60 s by
// default). The lock's record is only read, so renewals and takeovers never wait for a
// transaction.
type Guard struct {
	client       *mongo.Client
	locks        *mongo.Collection
	fences       *mongo.Collection
	timeout      time.Duration // of each command
	commitWindow time.Duration // commitWindow, shorter in tests
}

// NewGuard returns a guard for writes to db, whose client creates the sessions. The locks must
// belong to this driver and be on the same replica set or sharded cluster as db, because a
// transaction cannot span two. On a standalone server, which has no transactions, Do returns
// an error. All programs that share a lock must guard the same database. Locks with equal
// names from two collections must not guard the same database, since they would refuse each
// other. The client's user needs find on the locks, and find, insert and update on
// [FencesCollection].
func NewGuard(locks driver.Locker, db *mongo.Database) (*Guard, error) {
	locker, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return nil, guards.Error("", err)
	}
	if db == nil {
		return nil, guards.Error("", driver.Invalid("db", "nil", "a *mongo.Database"))
	}
	return newGuard(locker.majority, db, locker.config.timeout), nil
}

func newGuard(locks *mongo.Collection, db *mongo.Database, timeout time.Duration) *Guard {
	return &Guard{
		client:       db.Client(),
		locks:        db.Client().Database(locks.Database().Name()).Collection(locks.Name()).Clone(majorityOptions()),
		fences:       db.Collection(FencesCollection).Clone(majorityOptions()),
		timeout:      timeout,
		commitWindow: commitWindow,
	}
}

// Do runs fn in a transaction (snapshot read concern, majority write concern) that commits
// only if no later holder has used the guard, as [Guard] describes.
//
// fn's operations are part of the transaction if they use the context that fn gets and db's
// client. The context descends from ctx and also ends with hold. fn must return the errors of
// its operations (it may wrap them) and must not end the transaction. fn may run more than
// once: after a conflict, a change of the primary or a lost connection, the whole transaction
// is repeated with every check, for up to two minutes. What fn does outside the transaction
// must tolerate that. If fn returns an error or panics, the transaction is aborted, and the
// error or the panic reaches the caller.
//
// Errors:
//
//   - [ErrFenced], driver.ErrLost, or the cause of the hold's context, such as
//     holdfast.ErrReleased: the hold is over, and nothing was written.
//   - [ErrInDoubt]: the outcome of the commit is unknown after 15 s of retries. It can come
//     after ctx has ended.
//   - Any other error: nothing was written.
//
// Each command of the guard has the Locker's command timeout ([WithCommandTimeout]). The
// commands of fn end with its context. The server aborts any transaction after
// transactionLifetimeLimitSeconds, 60 s by default.
func (g *Guard) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context) error) error {
	if fn == nil {
		return guards.Error("", guard.ErrNoFunction)
	}
	return guards.Run(ctx, hold, func(ctx context.Context, lease driver.Lease) error {
		for begin, n := time.Now(), 0; ; n++ {
			again, err := g.attempt(ctx, hold, lease, fn)
			if !again || ctx.Err() != nil || time.Since(begin) >= guardRetryTime {
				return err
			}
			backoff(ctx, n)
		}
	})
}

const (
	fieldCommits = "commits" // in the fence's document: the number of guarded transactions

	labelTransient = "TransientTransactionError"
)

// attempt takes the steps of [Guard] once. again means that another attempt may succeed.
func (g *Guard) attempt(
	ctx context.Context, hold guard.Hold, lease driver.Lease, fn func(context.Context) error,
) (again bool, err error) {
	outside := mongo.NewSessionContext(ctx, nil) // outside the caller's transaction, too
	if err := g.raiseFence(outside, lease); err != nil {
		return isTransient(err), explainOn(g.fences, err, lease)
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
		return isTransient(err), explainOn(g.locks, err, lease)
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
		return isTransient(err), explainOn(g.locks, err, lease)
	}
	if err := g.writeFence(inside, lease); err != nil {
		return isTransient(err), explainOn(g.fences, err, lease)
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
		case hasLabel(err, labelTransient) && (hasCode(err, codeNoSuchTransaction) || n == 0 && hasCode(err, 0)):
			// The transaction was aborted, or its commit was not sent: the Go driver itself gives that the label, without a code. Any other
			// refusal can answer a repeat of a commit that was applied, also at n = 0, since the Go driver itself repeats a commit, until the
			// deadline, if its answer is lost. If nothing was applied, the next answer says that the transaction is gone.
			return true, err
		}
		if backoff(ctx, n); ctx.Err() != nil {
			return false, driver.Errorf("%w: %w", ErrInDoubt, err)
		}
	}
}

func (g *Guard) commitOnce(ctx context.Context, session *mongo.Session) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if err := session.CommitTransaction(ctx); err != nil {
		return explain(err, nil, namespaceOf(g.fences)) // before ErrInDoubt is put around it, since advice may replace the text
	}
	return nil
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

// explainOn explains the error of a command on the collection.
func explainOn(coll *mongo.Collection, err error, lease driver.Lease) error {
	return explain(err, []string{lease.ID.Reveal()}, namespaceOf(coll))
}

func namespaceOf(coll *mongo.Collection) string { return coll.Database().Name() + "." + coll.Name() }

// isTransient reports whether a command of the guard failed for a temporary reason: a
// conflict, a change of the primary, a lost connection, a time limit, or the duplicate key
// error of two raises that create the same fence.
func isTransient(err error) bool {
	return hasLabel(err, labelTransient) || hasLabel(err, "RetryableWriteError") ||
		mongo.IsNetworkError(err) || mongo.IsTimeout(err) || mongo.IsDuplicateKeyError(err)
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
