package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// ErrInDoubt says that the commit of a guarded transaction was sent, and no answer says what became of it. It was applied as a whole or
// not at all.
var ErrInDoubt = guard.ErrInDoubt

var (
	guards = guard.Kind{Backend: backend, Method: "guard", Limits: limits}
	fences = guard.Kind{Backend: backend, Method: "fence", Limits: limits}
)

// Beginner begins transactions of pgx: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Guard lets a transaction of a lock's holder commit only while no later holder exists. It
// protects against a process that was paused and continues after its lease without noticing. Tx
// is pgx.Tx or *sql.Tx. A Guard is safe for concurrent use.
//
// The table of the locks has a unique key of name and token. Before the commit, the guard reads the
// lock's row with the holder's token inside the transaction, with FOR KEY SHARE, unless its lease has
// expired by the server's clock. If there is no such row, the transaction is rolled back. If there
// is, then until the transaction ends
//
//   - the row cannot get another token: the next grant waits,
//   - renewals, releases and waiters that enter the queue do not wait, because they change no key.
//
// So the transactions of one lock commit in the order of their tokens, and a holder sees all that
// earlier ones wrote in guarded transactions, whether it uses the guard or not. The guard does
// not refuse writes outside of its transactions.
//
// [Guard.Do] takes that step last: a function that is slow or paused does not delay the next holder,
// and is refused afterwards. With REPEATABLE READ and SERIALIZABLE the row is that of the
// transaction's snapshot: a grant since then is a serialization failure (40001), and a release or the
// lease's expiry since then is not seen.
//
// A holder whose machine dies between that step and the commit would delay the next grant for as
// long as the server keeps the connection. So the guard sets idle_in_transaction_session_timeout
// for the rest of the transaction to 5 s ([Guard.Check]: one minute), unless it is lower.
//
// In any language the guard is one statement in the transaction. No row means: roll back.
//
//	SELECT 1 FROM holdfast_locks
//	WHERE name = $1 AND token = $2 AND holder <> '' AND expires > clock_timestamp()
//	FOR KEY SHARE
type Guard[Tx any] struct {
	table string // quoted, with the schema
	transactions[Tx]
}

// NewGuard returns a guard for transactions of pgx. The locks must belong to this driver. db must
// be a connection or a pool to their database, perhaps as another user, who needs SELECT on the
// table of the locks and UPDATE on any column of it. The options have the isolation level of the
// transactions. Errors match [driver.ErrInvalid].
func NewGuard(locks driver.Locker, db Beginner, options pgx.TxOptions) (*Guard[pgx.Tx], error) {
	if db == nil {
		return nil, guards.Error("", driver.Invalid("db", "nil", "a *pgxpool.Pool or a *pgx.Conn"))
	}
	return newGuard(locks, pgxTransactions(db, options))
}

// NewSQLGuard is [NewGuard] for transactions of database/sql, with any driver of PostgreSQL.
// Options may be nil.
//
// The time limits of [Guard.Do] need a driver that gives up a statement itself when its context ends. pgx does. lib/pq only asks
// the server to: on a network that has died Do waits until the system closes the connection, and meanwhile a lock that is renewed
// stays held. With lib/pq give the connections a timeout of their own, for example TCP_USER_TIMEOUT by a dialer.
func NewSQLGuard(locks driver.Locker, db *sql.DB, options *sql.TxOptions) (*Guard[*sql.Tx], error) {
	if db == nil {
		return nil, guards.Error("", driver.Invalid("db", "nil", "a *sql.DB"))
	}
	return newGuard(locks, sqlTransactions(db, options))
}

func newGuard[Tx any](locks driver.Locker, ts transactions[Tx]) (*Guard[Tx], error) {
	locker, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return nil, guards.Error("", err)
	}
	return &Guard[Tx]{table: locker.sql.table, transactions: ts}, nil
}

// Do runs fn in a transaction that commits only if no later holder exists, as [Guard] describes.
//
// fn's statements are guarded if they use tx. Its context descends from ctx and also ends with
// hold. fn must not end the transaction: what it has written before a COMMIT of its own stays, and
// Do returns an error. If fn returns an error or panics, the transaction is rolled back, and the
// error or the panic reaches the caller. Do does not repeat fn: after a serialization failure
// (40001) call Do again, as after any transaction.
//
// Errors:
//
//   - [driver.ErrLost], or the cause of the hold's context, such as holdfast.ErrReleased: the hold
//     is over, and nothing was written.
//   - [ErrInDoubt]: the outcome of the commit is unknown. It can come up to 15 s after ctx has ended. Do sees no warnings
//     of the server: if somebody cancels the commit's wait for a synchronous standby (pg_cancel_backend), Do returns nil.
//     A statement_timeout does not end that wait.
//   - Any other error: nothing was written.
//
// Do waits for the answer to the commit for 15 s, and for that to each other statement of its own for 10 s. As long may the
// transaction take to begin, the wait for a free connection of the pool included.
func (g *Guard[Tx]) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, tx Tx) error) error {
	return runGuarded(ctx, guards, hold, g.transactions, fn, guardSteps(g.table))
}

// Check guards a transaction that the program begins and commits itself: it refuses with
// [driver.ErrLost] unless hold has the lock, and otherwise nobody else is granted the lock before tx
// has ended. Late in the transaction it delays the next grant least. Not within a savepoint: its
// rollback would end the guard. After any error roll back.
func (g *Guard[Tx]) Check(ctx context.Context, tx Tx, hold guard.Hold) error {
	lease, err := guards.Lease(hold)
	if err == nil {
		err = hold.Err()
	}
	if err == nil {
		_, err = lockLease(ctx, g.bounded(tx), g.table, lease, idleInFunction)
	}
	return guards.Error(lease.Name, err)
}

const (
	idleInFunction   = time.Minute     // as MongoDB's transactionLifetimeLimitSeconds
	idleBeforeCommit = 5 * time.Second // between the last step and the commit there is one round trip
)

// named is the parameter with the name of a lock, as [nameArg] has it. Promise 3: the connection is the program's own, and may have
// another encoding, in which a text would be another name.
const named = `convert_from($1::bytea, 'UTF8')`

func nameArg(name string) []byte { return []byte(toText(name)) }

// heldSQL is the condition that a lease has the lock: $1 name, $2 token, $3 holder. A snapshot has the expiry of
// its own time, which renewals may have moved since.
const heldSQL = `name = ` + named + ` AND token = $2::bigint AND holder = $3::text AND expires > CASE
	WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
	THEN transaction_timestamp() ELSE clock_timestamp() END`

func guardSteps(table string) steps {
	return steps{
		// This refuses most late functions before they run. It is no guard.
		first: func(ctx context.Context, tx transaction, lease driver.Lease) (begin string, err error) {
			var found int64
			err = tx.queryRow(ctx, `SELECT count(*), `+began+` FROM `+table+` WHERE `+heldSQL, leaseArgs(lease), &found, &begin)
			if err == nil && found == 0 {
				err = refusal(ctx, tx, table, lease)
			}
			return begin, err
		},
		last: func(ctx context.Context, tx transaction, lease driver.Lease) (string, error) {
			return lockLease(ctx, tx, table, lease, idleBeforeCommit)
		},
	}
}

func leaseArgs(lease driver.Lease) []any {
	return []any{nameArg(lease.Name), int64(lease.Token), lockrecord.Digest(lease.ID)}
}

// lockLease is the guard. It returns when the transaction began.
func lockLease(ctx context.Context, tx transaction, table string, lease driver.Lease, idle time.Duration) (begin string, err error) {
	found, begin, err := lockRow(ctx, tx, table, heldSQL, leaseArgs(lease), idle)
	if err == nil && !found {
		err = refusal(ctx, tx, table, lease)
	}
	return begin, err
}

// refusal says why there is no row for the lease.
func refusal(ctx context.Context, tx transaction, table string, lease driver.Lease) error {
	var token int64
	var held, expired bool
	err := tx.queryRow(ctx, `SELECT coalesce(max(token), 0), coalesce(bool_or(holder <> ''), false),
			coalesce(bool_or(expires <= clock_timestamp()), false)
		FROM `+table+` WHERE name = `+named, []any{nameArg(lease.Name)}, &token, &held, &expired)
	switch {
	case err != nil:
		return driver.Errorf("%w: the row of the lease is not there (%w)", driver.ErrLost, err)
	case token > int64(lease.Token):
		return driver.Errorf("%w: a later holder has token %d, this holder's is %d", driver.ErrLost, token, lease.Token)
	case token == 0:
		return driver.Errorf("%w: the lock has no row in %s", driver.ErrLost, table)
	case !held:
		return driver.Errorf("%w: it was released", driver.ErrLost)
	case expired:
		return driver.Errorf("%w: it has expired by the server's clock", driver.ErrLost)
	}
	return driver.Errorf("%w: the row in %s has token %d, this holder's is %d", driver.ErrLost, table, token, lease.Token)
}

// runGuarded runs fn in a transaction between the steps, and commits.
func runGuarded[Tx any](
	ctx context.Context, kind guard.Kind, hold guard.Hold, ts transactions[Tx], fn func(context.Context, Tx) error, s steps,
) error {
	if fn == nil {
		return kind.Error("", guard.ErrNoFunction)
	}
	return kind.Run(ctx, hold, func(ctx context.Context, lease driver.Lease) error {
		err := attempt(ctx, hold, lease, ts, fn, s)
		if errors.Is(err, errLowerFence) && !guard.IsFromFunction(err) {
			if err = s.raise(ctx, lease); err == nil {
				err = attempt(ctx, hold, lease, ts, fn, s)
			}
		}
		return err
	})
}
