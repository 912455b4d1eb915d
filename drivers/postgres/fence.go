package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
)

// raiseTimeout is longer than the guarded transactions of an earlier holder that was paused: the server ends those.
const raiseTimeout = idleInFunction + 5*time.Second

// ErrFenced says that a later holder of the lock has raised the fence. It also matches
// driver.ErrLost, since the lease must have ended.
var ErrFenced = guard.ErrFenced

// CreateFences makes the table that a [Fence] needs, for a migration or for db.Exec. It has one
// small row for each lock, the greatest token that was seen.
const CreateFences = `CREATE TABLE IF NOT EXISTS holdfast_fences (
	name text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	UNIQUE (name, token)
)`

// Fence applies the fencing tokens of any backend's locks to transactions of a PostgreSQL
// database. Use it where the locks are elsewhere, for example in Azure Blob Storage or in another
// database; where they are in the same database, a [Guard] refuses more. Tx is pgx.Tx or *sql.Tx.
// A Fence is safe for concurrent use.
//
// The fence of a lock is its row in the table of [CreateFences]. A holder first raises it to its token,
// in a transaction of its own; if it is higher, [ErrFenced] is returned. Then each transaction begins with
// a read of the row with this token, FOR KEY SHARE, and until it ends a later holder's raise waits. So the
// transactions of one lock commit in the order of their tokens, and each sees what those of earlier
// holders wrote.
//
// A fence compares tokens and nothing else. It does not refuse a transaction of an earlier holder before
// the later one has raised the fence, or after a release. All programs that share a lock must use
// the same table, in which no other lock has its name.
type Fence[Tx any] struct{ transactions[Tx] }

// NewFence returns a fence for transactions of pgx. Its user needs SELECT, INSERT and UPDATE on
// holdfast_fences, which is found by the search path.
func NewFence(db Beginner, options pgx.TxOptions) (*Fence[pgx.Tx], error) {
	if db == nil {
		return nil, fences.Error("", driver.Invalid("db", "nil", "a *pgxpool.Pool or a *pgx.Conn"))
	}
	return &Fence[pgx.Tx]{pgxTransactions(db, options)}, nil
}

// NewSQLFence is [NewFence] for transactions of database/sql, with any driver of PostgreSQL.
// Options may be nil.
func NewSQLFence(db *sql.DB, options *sql.TxOptions) (*Fence[*sql.Tx], error) {
	if db == nil {
		return nil, fences.Error("", driver.Invalid("db", "nil", "a *sql.DB"))
	}
	return &Fence[*sql.Tx]{sqlTransactions(db, options)}, nil
}

// Do runs fn in a transaction with the hold's token, as [Guard.Do] does. Its errors are the same,
// and [ErrFenced].
func (f *Fence[Tx]) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, tx Tx) error) error {
	return runGuarded(ctx, fences, hold, f.transactions, fn, steps{
		raise: func(ctx context.Context, lease driver.Lease) error { return f.raise(ctx, lease.Name, lease.Token) },
		first: func(ctx context.Context, tx transaction, lease driver.Lease) (string, error) {
			return checkFence(ctx, tx, lease.Name, lease.Token)
		},
		last: func(ctx context.Context, tx transaction, _ driver.Lease) (begin string, err error) {
			var set string
			err = tx.queryRow(ctx, `SELECT `+began+`, `+boundIdle(idleBeforeCommit), nil, &begin, &set)
			return begin, err
		},
	})
}

// Raise raises the fence of a lock to a token, for transactions that the program begins and commits itself. Call it
// before such a transaction begins, and [Fence.Check] as the first thing inside.
func (f *Fence[Tx]) Raise(ctx context.Context, name string, token uint64) error {
	err := guard.CheckToken(token)
	if err == nil {
		err = f.raise(ctx, name, token)
	}
	return fences.Error(name, err)
}

// Check guards a transaction: it returns [ErrFenced] unless the fence has this token, and otherwise no later holder can raise
// it before tx has ended. Not within a savepoint. After any error roll back.
func (f *Fence[Tx]) Check(ctx context.Context, tx Tx, name string, token uint64) error {
	err := guard.CheckToken(token)
	if err == nil {
		_, err = checkFence(ctx, f.bounded(tx), name, token)
	}
	return fences.Error(name, err)
}

// raise raises the fence if it is lower. Its transaction is over before the guarded one begins: with a snapshot from before its
// wait, that would not see what the earlier holder wrote meanwhile.
func (f *Fence[Tx]) raise(ctx context.Context, name string, token uint64) (err error) {
	var raised bool
	for range 5 {
		raised, err = f.raiseOnce(ctx, name, token)
		if raised || err != nil && sqlState(err) != codeSerialization {
			return err
		}
	}
	return cmp.Or(err, errLowerFence)
}

// raiseOnce returns false without an error if another transaction has made the row meanwhile.
func (f *Fence[Tx]) raiseOnce(ctx context.Context, name string, token uint64) (raised bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	begun, err := f.start(ctx, end)
	if err != nil {
		return false, err
	}
	tx := f.bounded(begun)
	defer tx.undo(ctx, end)
	var highest int64
	var hasPair bool
	// It waits for those transactions, so it has all of the time, and not that of a step.
	// ON CONFLICT (name) would not cover the other key. The row that it reads last is that of before.
	err = tx.query(ctx, `WITH new AS (
			INSERT INTO holdfast_fences (name, token) SELECT `+named+`, $2::bigint
			WHERE NOT EXISTS (SELECT FROM holdfast_fences WHERE name = `+named+`) ON CONFLICT DO NOTHING RETURNING 1),
		raised AS (UPDATE holdfast_fences SET token = $2::bigint WHERE name = `+named+` AND token < $2::bigint RETURNING 1)
		SELECT EXISTS (SELECT FROM new) OR EXISTS (SELECT FROM raised),
			coalesce((SELECT max(token) FROM holdfast_fences WHERE name = `+named+`), 0), `+hasKey(`to_regclass('holdfast_fences')`, `name, token`),
		nameArg(name), int64(token)).Scan(&raised, &highest, &hasPair)
	switch {
	case err != nil:
		return false, withAdvice(err)
	case !hasPair: // Promise 3: without it, a raise would not wait for the transactions of the holder before
		return false, noKey("holdfast_fences")
	case raised:
		return true, tx.commit(ctx)
	case highest > int64(token):
		return false, fencedOff(highest, token)
	}
	return highest == int64(token), nil
}

// withAdvice says what to do where there is no table.
func withAdvice(err error) error {
	if sqlState(err) == codeNoTable {
		return fmt.Errorf("%w: create the table with postgres.CreateFences", err)
	}
	return err
}

func fencedOff(highest int64, token uint64) error {
	return driver.Errorf("%w: its token is %d, this holder's is %d", ErrFenced, highest, token)
}

var errLowerFence = errors.New("the fence has not been raised to the token")

// checkFence keeps others from raising the fence until the transaction ends. It returns when that began.
func checkFence(ctx context.Context, tx transaction, name string, token uint64) (begin string, err error) {
	found, begin, err := lockRow(ctx, tx, "holdfast_fences", `name = `+named+` AND token = $2::bigint`,
		[]any{nameArg(name), int64(token)}, idleInFunction)
	if err != nil || found {
		return begin, withAdvice(err)
	}
	var highest int64
	err = tx.queryRow(ctx, `SELECT coalesce(max(token), 0) FROM holdfast_fences WHERE name = `+named, []any{nameArg(name)}, &highest)
	if err == nil && highest > int64(token) {
		err = fencedOff(highest, token)
	}
	return begin, cmp.Or(err, errLowerFence)
}
