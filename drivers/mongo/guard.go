package mongo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
)

// FencesCollection is where a [Guard] keeps the greatest token that it has seen
// of each lock, in the database that it guards: {_id: <lock>, token, commits}.
// The documents are small, one for each lock, and are never removed. One without
// a guard under way, and whose old holders are surely gone, may be deleted.
const FencesCollection = "holdfast_fences"

// ErrFenced says that a later holder of the lock has come to the guard. It
// matches driver.ErrLost as well, since the lease must have ended.
var ErrFenced = fmt.Errorf("a later holder has raised the fence: %w", driver.ErrLost)

// ErrInDoubt says that a transaction was sent to be committed and no answer was
// had: it may have been applied as a whole, or not at all.
var ErrInDoubt = errors.New("the outcome of the commit is unknown")

// Hold is what a [Guard] needs to know of a *[holdfast.Hold].
type Hold interface {
	Lease() driver.Lease
	Context() context.Context
	Err() error
}

// guardRetries is for how long Do repeats a transaction that conflicts, or whose
// server fails. It is as long as MongoDB's own drivers do.
const guardRetries = 2 * time.Minute

// Guard runs writes of a lock's holder in transactions that the server refuses
// once a later holder is at work: against a process that was paused, and goes on
// after its lease without knowing. It is safe for concurrent use.
//
// [Guard.Do] takes these steps. The fence is the lock's document in
// [FencesCollection].
//
//  1. Raise the fence to the hold's token; refuse if it is higher already.
//  2. Begin a transaction and read the lock's record in it; refuse unless it
//     names this lease, unexpired by the server's clock.
//  3. Run the function.
//  4. Read the lock's record once more, outside the transaction, as 2 does.
//  5. Write the fence's document in the transaction.
//  6. Commit.
//
// Everything that can come between, with A the older holder and B the later:
//
//   - B raises the fence before A begins: step 1 refuses A.
//   - B raises it between A's steps 2 and 5: step 5 conflicts with that write, the
//     server aborts A's transaction, and A's next attempt is refused by step 1.
//   - B raises it after A's step 5: B waits in step 1 until A has committed or
//     aborted. A's writes come first, and B's function sees them.
//   - B is granted the lock, but has not come to the guard yet: steps 2 and 4
//     refuse A. If the grant comes after A's step 4, A may commit, but only before
//     B's step 1, so B's function sees all of it.
//   - A's lease was released, broken at once, or expired, and nobody follows:
//     refused by steps 2 and 4.
//
// So of all guarded functions of one lock, those that commit do so in the order
// of their tokens, and each reads what every earlier one wrote, all in one
// snapshot that was taken while the lease was good. Not refused, and for the
// program to avoid: writes that do not go through the guard, and what B did
// before its step 1 on the strength of unguarded reads.
//
// The first raise is outside the transaction, and the second write comes last,
// since others that write the same document wait for an open transaction: a
// holder that is paused inside its function must not hold up the next. Between
// the steps 5 and 6 it can, for one round trip; should it be paused just there,
// the server aborts the transaction after transactionLifetimeLimitSeconds (60 s
// by default). The lock's record is only read, so renewals and take-overs never
// wait for a transaction.
type Guard struct {
	client  *mongo.Client
	locks   *mongo.Collection
	fences  *mongo.Collection
	timeout time.Duration // of each command
	window  time.Duration // commitWindow, less in tests
}

// NewGuard makes a guard for writes to db, whose client makes the sessions. The
// locks must be this driver's, on the same replica set or sharded cluster as db:
// a transaction does not reach farther. Transactions need one of these two; on a
// standalone server Do returns an error. All programs that share a lock must guard
// the same database, and locks of two collections whose names are equal must not
// guard one, for they would refuse each other. The client's user needs find on the
// locks, and find, insert and update on [FencesCollection].
func NewGuard(locks driver.Locker, db *mongo.Database) (*Guard, error) {
	locker, ok := locks.(*Locker)
	if !ok || locker == nil {
		return nil, driver.Invalid("locks", fmt.Sprintf("of type %T", locks), "a Locker of this driver")
	}
	if db == nil {
		return nil, driver.Invalid("db", "nil", "a *mongo.Database")
	}
	return newGuard(locker.writes, db, locker.config.timeout), nil
}

func newGuard(locks *mongo.Collection, db *mongo.Database, timeout time.Duration) *Guard {
	own := options.Collection().SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{}).
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
	return &Guard{
		client:  db.Client(),
		locks:   db.Client().Database(locks.Database().Name()).Collection(locks.Name()).Clone(own),
		fences:  db.Collection(FencesCollection).Clone(own),
		timeout: timeout,
		window:  commitWindow,
	}
}

// Do runs fn in a transaction (snapshot read concern, majority write concern) that
// commits only if no later holder is at work, as [Guard] describes.
//
// fn's operations are part of the transaction if they use the context it is given
// and db's client. The context descends from ctx and ends also with hold. fn must
// return the errors of its operations, may wrap them, must not end the
// transaction, and may be run more than once: after a conflict, a change of the
// primary or a lost connection the whole transaction is repeated, every check
// included, for up to two minutes. What it does outside the transaction should
// bear that. If fn returns an error or panics, the transaction is aborted, and the
// error or the panic passed on.
//
// Errors: [ErrFenced] and driver.ErrLost say that the hold is over, and nothing
// was written; so does the cause of the hold's context, such as holdfast.ErrReleased.
// [ErrInDoubt] says that it cannot be told what became of the commit,
// after 15 s of asking, even if ctx has ended by then. With every other error
// nothing was written.
//
// Each command of the guard has the Locker's command timeout ([WithCommandTimeout]).
// Those of fn end with its context; the server aborts any transaction after
// transactionLifetimeLimitSeconds, 60 s by default.
func (g *Guard) Do(ctx context.Context, hold Hold, fn func(ctx context.Context) error) error {
	if hold == nil || fn == nil {
		return driver.Invalid("hold or function", "nil", "given")
	}
	lease := hold.Lease()
	wrap := func(err error) error {
		return &driver.OpError{Op: "guard", Backend: backend, Name: lease.Name, Err: err}
	}
	if err := validLease(lease); err != nil {
		return wrap(err)
	}
	ctx, cancel := endWith(ctx, hold)
	defer cancel()

	for begin, n := time.Now(), 0; ; n++ {
		again, err := g.attempt(ctx, hold, fn)
		var fromFn *fnError
		switch {
		case err == nil:
			return nil
		case again && ctx.Err() == nil && time.Since(begin) < guardRetries:
			pause(ctx, n)
			continue
		case ctx.Err() != nil && !errors.Is(err, ErrInDoubt):
			err = withCause(ctx, hold, err)
		case errors.As(err, &fromFn):
			return fromFn.err
		}
		return wrap(explain(err, []string{lease.ID.Reveal()}, g.locks.Database().Name()+"."+g.locks.Name()))
	}
}

// endWith returns a context that ends when ctx or the hold does.
func endWith(ctx context.Context, hold Hold) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	held := hold.Context()
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// fnError marks an error as the user's function's.
type fnError struct{ err error }

func (e *fnError) Error() string { return e.err.Error() }
func (e *fnError) Unwrap() error { return e.err }

// withCause adds why ctx ended, where err does not tell. If the hold has ended, the
// error matches its cause, such as [driver.ErrLost]; the end of another hold, whose
// context the caller's may descend from, says nothing of this one.
func withCause(ctx context.Context, hold Hold, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, cause):
		return err
	case errors.Is(context.Cause(hold.Context()), cause):
		return fmt.Errorf("%w (%w)", cause, err)
	default:
		return because(err, cause)
	}
}

func validLease(l driver.Lease) error {
	if l.Token == 0 || l.Token > math.MaxInt64 {
		return driver.Invalid("Token", strconv.FormatUint(l.Token, 10), "one that this driver gave")
	}
	return driver.ValidateName(l.Name, limits)
}
