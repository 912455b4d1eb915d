package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
)

const (
	stepTimeout = 10 * time.Second // of each of the guard's own statements
	// commitTimeout bounds a commit, which may wait for a synchronous standby.
	commitTimeout = 15 * time.Second
)

// late says that a step took too long.
func late(step string, limit time.Duration) error {
	return fmt.Errorf("%s within %v: %w", step, limit, context.DeadlineExceeded)
}

// steps are what is done before and after the function of a guarded transaction. The last must fail
// if the function has ended the transaction, or has gone on after an error in it.
type steps struct {
	// raise is called, unless it is nil, if the first step returns errLowerFence.
	raise       func(context.Context, driver.Lease) error
	first, last func(context.Context, transaction, driver.Lease) (began string, err error)
}

// began is the time at which a transaction began. It tells the guard's own from what comes after a COMMIT among the
// function's statements: there, each statement is a transaction.
const began = `extract(epoch FROM now())::text`

// boundIdle sets the limit for the rest of the transaction. A lower one stays.
func boundIdle(limit time.Duration) string {
	return fmt.Sprintf(`set_config('idle_in_transaction_session_timeout', CASE
		WHEN extract(epoch FROM s::interval) * 1000 BETWEEN 1 AND %[1]d THEN s ELSE '%[1]d' END, true)
		FROM current_setting('idle_in_transaction_session_timeout') AS s`, limit.Milliseconds())
}

// lockRow locks the row of a condition, if there is one, and bounds how long the transaction may be idle from now on. It
// returns when that began.
func lockRow(
	ctx context.Context, tx transaction, table, condition string, args []any, idle time.Duration,
) (found bool, begin string, err error) {
	var set string
	var key bool
	// Promise 3: until the transaction ends, the row keeps its token. Without the key a grant would change it all the same. The
	// statement locks the table, so that nobody can drop the key before the transaction ends; a snapshot from before a drop does not
	// hide it, because the definition of an index that is gone is NULL.
	err = tx.queryRow(ctx, `WITH guard AS MATERIALIZED (SELECT tableoid FROM `+table+` WHERE `+condition+` FOR KEY SHARE)
		SELECT EXISTS (SELECT FROM guard), `+began+`,
			coalesce((SELECT `+hasKey(`g.tableoid`, `name, token`)+` FROM guard AS g), true), `+boundIdle(idle), args, &found, &begin, &key, &set)
	if err == nil && !key {
		err = noKey(table)
	}
	return found, begin, err
}

// noKey says that a table has lost the key on which guards and fences rely.
func noKey(table string) error {
	return driver.Damaged(fmt.Errorf("the table %s has no unique index on (name, token): nothing would keep a later holder from its row; "+
		"create it: CREATE UNIQUE INDEX CONCURRENTLY ON %s (name, token)", table, table))
}

// attempt runs fn in a transaction between the steps, and commits.
func attempt[Tx any](
	ctx context.Context, hold guard.Hold, lease driver.Lease, ts transactions[Tx], fn func(context.Context, Tx) error, s steps,
) error {
	// The transaction's own context ends with ctx, until the commit is sent.
	inside, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer stop()
	tx, err := ts.start(inside, end)
	if err != nil {
		return err
	}
	wrapped := ts.bounded(tx)
	defer wrapped.undo(ctx, end) // also if fn panics; after a commit it does nothing
	begin, err := s.first(inside, wrapped, lease)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // inside may end a moment later, and the function must not begin
		return ctx.Err()
	}
	if err := fn(ctx, tx); err != nil {
		return guard.FromFunction(err)
	}
	if err := hold.Err(); err != nil {
		return err
	}
	switch same, err := s.last(inside, wrapped, lease); {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone), same != "" && same != begin:
		return guard.ErrTransactionEnded
	case err != nil:
		return err
	}
	if !stop() { // nothing cancels the commit from now on
		return ctx.Err()
	}
	limit := time.AfterFunc(ts.commitLimit, func() { end(late("no answer", ts.commitLimit)) })
	defer limit.Stop()
	err = wrapped.commit(inside)
	if inside.Err() != nil && sqlState(err) == "" {
		// Also without an error: lib/pq, and pgx if so configured, have the server cancel the commit. That ends its wait for a
		// synchronous standby with a success, which a fail-over can forget.
		err = context.Cause(inside)
	}
	return outcome(err)
}

// outcome judges the error of a commit. Only the server's own answer says that it was not applied.
func outcome(err error) error {
	switch code := sqlState(err); {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback), code != "" && !leavesOpen(code) && !mayPanic(err, code):
		return err
	}
	return driver.Errorf("%w: %w", ErrInDoubt, err)
}

// leavesOpen reports whether a code leaves open what became of the statement: connection exceptions, statement completion unknown, the
// server's end, and transaction_timeout, which can run out between the commit's last look at it and the commit.
func leavesOpen(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || code == "40003" || code == codeTransactionTimeout
}

// mayPanic reports whether a server may have ended while it committed (see [severityPanic]). Internal and system errors may also come from
// a pooler that has lost the server, whatever their severity. Those of resources are the server's own; of other drivers than pgx only the
// code is known.
func mayPanic(err error, code string) bool {
	var server *pgconn.PgError
	switch {
	case strings.HasPrefix(code, "58"), strings.HasPrefix(code, "XX"):
		return true
	case errors.As(err, &server):
		return server.SeverityUnlocalized == severityPanic
	}
	return strings.HasPrefix(code, "53")
}

// transactions begin transactions of one kind.
type transactions[Tx any] struct {
	begin func(context.Context) (Tx, error)
	wrap  func(Tx) transaction

	stepLimit, commitLimit time.Duration
}

// start begins a transaction. end ends inside, its context, which it does after the limit of a step.
func (ts transactions[Tx]) start(inside context.Context, end context.CancelCauseFunc) (tx Tx, err error) {
	limit := time.AfterFunc(ts.stepLimit, func() { end(context.DeadlineExceeded) })
	tx, err = ts.begin(inside)
	if !limit.Stop() {
		if err == nil {
			ts.bounded(tx).undo(inside, end)
		}
		err = late("the transaction has not begun", ts.stepLimit)
	}
	return tx, err
}

func (ts transactions[Tx]) bounded(tx Tx) transaction {
	t := ts.wrap(tx)
	t.limit = ts.stepLimit
	return t
}

// transaction is one of pgx or of database/sql.
type transaction struct {
	query            func(ctx context.Context, query string, args ...any) pgx.Row
	commit, rollback func(ctx context.Context) error
	limit            time.Duration // of a step
}

// undo rolls back, unless the transaction has ended. The ROLLBACK of database/sql has no context but the transaction's, which
// end ends.
func (t transaction) undo(ctx context.Context, end context.CancelCauseFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { end(context.DeadlineExceeded) })
	defer stop()
	_ = t.rollback(ctx)
}

// queryRow reads one row, within the limit of a step.
func (t transaction) queryRow(ctx context.Context, query string, args []any, to ...any) error {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	return t.query(ctx, query, args...).Scan(to...)
}

func pgxTransactions(db Beginner, options pgx.TxOptions) transactions[pgx.Tx] {
	return transactions[pgx.Tx]{
		begin: func(ctx context.Context) (pgx.Tx, error) { return db.BeginTx(ctx, options) },
		wrap: func(tx pgx.Tx) transaction {
			return transaction{query: tx.QueryRow, commit: tx.Commit, rollback: tx.Rollback}
		},
		stepLimit: stepTimeout, commitLimit: commitTimeout,
	}
}

func sqlTransactions(db *sql.DB, options *sql.TxOptions) transactions[*sql.Tx] {
	return transactions[*sql.Tx]{
		begin: func(ctx context.Context) (*sql.Tx, error) {
			tx, err := db.BeginTx(ctx, options)
			return tx, withoutString(err)
		},
		wrap: func(tx *sql.Tx) transaction {
			return transaction{
				query: func(ctx context.Context, query string, args ...any) pgx.Row {
					return tx.QueryRowContext(ctx, query, args...)
				},
				commit:   func(context.Context) error { return tx.Commit() },
				rollback: func(context.Context) error { return tx.Rollback() },
			}
		},
		stepLimit: stepTimeout, commitLimit: commitTimeout,
	}
}
