package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// ErrInDoubt says that the commit of a guarded transaction was sent, and no answer says what became of it. It was applied as a whole or
// not at all.
var ErrInDoubt = guard.ErrInDoubt

var guards = guard.Kind{Backend: backend, Method: "guard", Limits: driver.Limits{MaxName: 1024}}

// Guard lets a transaction of a lock's holder commit only while no later holder exists. It protects against a process that was paused and
// continues after its lease without noticing. It is safe for concurrent use.
//
// The table of the locks has a unique key of token and name. Before the commit, the guard takes a shared lock on the entry with the
// holder's token. If there is none, the transaction is rolled back. If there is one, then until the transaction ends
//
//   - the row cannot get another token: the next grant waits,
//   - renewals and releases do not wait, because they leave that key as it is, and InnoDB does not lock the row for a shared lock on a
//     key.
//
// So the transactions of one lock commit in the order of their tokens, and a holder sees all that earlier ones wrote in guarded
// transactions. The guard does not refuse writes outside of its transactions, nor one after the lease has ended while nobody else has
// been granted the lock.
//
// [Guard.Do] takes that step last: a function that is slow or paused does not delay the next holder, and is refused afterwards. A grant
// that has to wait fails after the server's innodb_lock_wait_timeout, or the Locker's own time limit, and is tried again.
//
// On a Galera cluster nodes do not know of each other's shared locks, and a node can apply a grant late. There the guard changes the row
// instead, so the cluster lets only one of a guarded transaction and a grant commit: the other one fails with a deadlock (1213). The same
// holds of a renewal on another node, and renewals on this node wait for the transaction.
//
// A holder whose machine dies between that step and the commit would delay the next grant for as long as the server keeps the
// connection. So Do sets wait_timeout of the session to 5 s at most until the commit.
//
// In any language the guard is one statement in the transaction. No row means: roll back.
//
//	SELECT token FROM holdfast_locks FORCE INDEX (token_name) WHERE token = ? AND name = ? LOCK IN SHARE MODE
//	UPDATE holdfast_locks SET written = written + 1 WHERE token = ? AND name = ? -- on a Galera cluster
//
// Where MariaDB has innodb_snapshot_isolation, SET STATEMENT has it OFF for the UPDATE: a renewal since the transaction's snapshot would be
// an error (1020).
type Guard struct {
	table   string // qualified and quoted
	change  string // the beginning of the statement on a Galera cluster; otherwise empty
	db      *sql.DB
	options *sql.TxOptions

	stepLimit   time.Duration // of each of the guard's own statements
	commitLimit time.Duration
}

// NewGuard returns a guard. The locks must belong to this driver. db is the program's database on the same server, perhaps with another
// user, who needs SELECT and UPDATE on the table of the locks. The options have the isolation level of the transactions, and may be nil.
// Errors match [driver.ErrInvalid].
func NewGuard(locks driver.Locker, db *sql.DB, options *sql.TxOptions) (*Guard, error) {
	if db == nil {
		return nil, guards.Error("", driver.Invalid("db", "nil", "a *sql.DB"))
	}
	locker, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return nil, guards.Error("", err)
	}
	server := locker.store.server.Load()
	if server == nil {
		return nil, guards.Error("", driver.Invalid("locks", "opened for reading", "a Locker that can acquire"))
	}
	return &Guard{table: server.table, change: server.guardChange(), db: db, options: options, stepLimit: 10 * time.Second,
		commitLimit: 15 * time.Second}, nil
}

const (
	// A savepoint is gone when its transaction is. Check has another one, because Do's function may call it.
	savepoint, checkSavepoint = "holdfast_guard", "holdfast_check"
	// boundIdle bounds how long the transaction may be idle from now on, and unboundIdle ends that.
	boundIdle   = "SET @holdfast_wait_timeout = @@session.wait_timeout, SESSION wait_timeout = LEAST(5, @@session.wait_timeout)"
	unboundIdle = "SET SESSION wait_timeout = @holdfast_wait_timeout"
)

// Do runs fn in a transaction that commits only if no later holder exists, as [Guard] describes.
//
// fn's statements are guarded if they use tx. Its context descends from ctx and also ends with hold; the transaction lasts until fn returns
// all the same, and is rolled back then. fn must not end the transaction: what it has written before a COMMIT of its own, or a statement
// that commits by itself, stays, and Do returns an error. If fn returns an error or panics, the transaction is rolled back, and the error
// or the panic reaches the caller. Do does not repeat fn: after a deadlock (1213) call Do again, as after any transaction.
//
// Errors:
//
//   - [driver.ErrLost], or the cause of the hold's context, such as holdfast.ErrReleased: the hold is over, and nothing was written.
//   - [ErrInDoubt]: the outcome of the commit is unknown.
//   - Any other error: nothing was written.
//
// Do waits for the answer to the commit for 15 s, and for that to each other statement of its own for 10 s. It waits for a connection of
// the pool for 10 s at most, too.
func (g *Guard) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return guards.Error("", guard.ErrNoFunction)
	}
	return guards.Run(ctx, hold, func(ctx context.Context, lease driver.Lease) error { return g.attempt(ctx, hold, lease, fn) })
}

// Check guards a transaction that the program begins and commits itself: it refuses with [driver.ErrLost] if a later holder exists,
// and otherwise nobody else is granted the lock before tx has ended. A statement that commits by itself, such as TRUNCATE or CREATE
// TABLE, ends tx: after one, Check returns [guard.ErrTransactionEnded], unless the session begins another by itself (autocommit off,
// completion_type CHAIN), and none may come later. Do not call it after a savepoint to which the transaction may roll back: on a
// Galera cluster that would end the guard. Call it late in the transaction, so that it delays the next grant least. A connection that
// hangs after it delays it for as long as wait_timeout of the session. After any error roll back.
func (g *Guard) Check(ctx context.Context, tx *sql.Tx, hold guard.Hold) error {
	lease, err := guards.Lease(hold)
	if err == nil {
		err = hold.Err()
	}
	for _, statement := range []string{"SAVEPOINT ", "RELEASE SAVEPOINT "} { // without a transaction there would be no guard
		if err == nil {
			err = ended(g.step(ctx, tx, statement+checkSavepoint))
		}
	}
	if err == nil {
		err = g.lock(ctx, tx, lease)
	}
	return guards.Error(lease.Name, err)
}

// lock is the guard.
//
// Promise 3: until the transaction ends, the row keeps its token. It is a read of the present row, not of the transaction's snapshot.
func (g *Guard) lock(ctx context.Context, tx *sql.Tx, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, g.stepLimit)
	defer cancel()
	var found int64
	var err error
	entry := " WHERE token = " + strconv.FormatUint(lease.Token, 10) + " AND name = " + literal(lockrecord.Key(lease.Name))
	if g.change != "" {
		found, err = changed(tx.ExecContext(ctx, g.change+entry))
	} else {
		err = tx.QueryRowContext(ctx, "SELECT 1 FROM "+g.table+" FORCE INDEX ("+tokenIndex+")"+entry+" LOCK IN SHARE MODE").Scan(&found)
	}
	if err == nil && found == 0 || errors.Is(err, sql.ErrNoRows) {
		return driver.Errorf("%w: a later holder has got the lock, or its record is gone", driver.ErrLost)
	}
	return classify(err)
}

func changed(result sql.Result, err error) (rows int64, _ error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// step makes one of the guard's own statements.
func (g *Guard) step(ctx context.Context, tx *sql.Tx, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, g.stepLimit)
	defer cancel()
	_, err := tx.ExecContext(ctx, statement)
	return err
}

// ended returns the error of a statement of the guard: [guard.ErrTransactionEnded] if the transaction has ended.
func ended(err error) error {
	switch {
	case errors.Is(err, sql.ErrTxDone): // also if database/sql has rolled it back, because the context of BeginTx has ended
		return fmt.Errorf("%w: %w", guard.ErrTransactionEnded, err)
	case hasCode(err, codeNoSavepoint):
		return guard.ErrTransactionEnded
	}
	return classify(err)
}

// connection takes a connection of the program's pool. While it waits, the lock is renewed, and kept from others that could work.
func (g *Guard) connection(ctx context.Context) (*sql.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, g.stepLimit)
	defer cancel()
	conn, err := g.db.Conn(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, fmt.Errorf("no connection was free or could be made within %v: %w", g.stepLimit, context.DeadlineExceeded)
	}
	return conn, classify(err)
}

// attempt runs fn in a transaction, takes the guard, and commits.
func (g *Guard) attempt(ctx context.Context, hold guard.Hold, lease driver.Lease, fn func(context.Context, *sql.Tx) error) error {
	conn, err := g.connection(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// The end of the transaction's own context would have package database/sql roll back, with no time limit. So it ends only while the
	// transaction begins.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop, limit := context.AfterFunc(ctx, end), time.AfterFunc(g.stepLimit, end)
	tx, err := conn.BeginTx(life, g.options)
	stop()
	limit.Stop()
	if err != nil {
		discard(conn)
		if ctx.Err() == nil && life.Err() != nil {
			err = context.DeadlineExceeded
		}
		return classify(err)
	}
	committed, bounded := false, false
	defer func() { g.end(context.WithoutCancel(ctx), conn, tx, committed, bounded) }() // also if fn panics
	if err := g.step(ctx, tx, "SAVEPOINT "+savepoint); err != nil {
		return classify(err)
	}
	if err := fn(ctx, tx); err != nil {
		return guard.FromFunction(err)
	}
	if err := hold.Err(); err != nil {
		return err
	}
	if err = g.step(ctx, tx, "RELEASE SAVEPOINT "+savepoint); err == nil {
		bounded = true
		err = g.step(ctx, tx, boundIdle)
	}
	if err != nil {
		return ended(err)
	}
	if err := g.lock(ctx, tx, lease); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.commitLimit) // nothing else ends the commit from now on
	defer cancel()
	_, err = tx.ExecContext(limited, "COMMIT")
	committed = err == nil
	return outcome(err)
}

// end ends a transaction on the server, unless it is committed, and bounds the session no more. The methods of tx that would do so have no
// time limit: on a network that has died they wait for minutes, and with them a lock that is renewed meanwhile.
//
// A connection on which that fails is not used again. On a Galera node without its cluster, the next transaction would find this one open,
// and commit it without a guard.
func (g *Guard) end(ctx context.Context, conn *sql.Conn, tx *sql.Tx, committed, bounded bool) {
	ctx, cancel := context.WithTimeout(ctx, g.stepLimit)
	defer cancel()
	last, err := "ROLLBACK", error(nil)
	if bounded {
		if last = unboundIdle; !committed {
			_, err = tx.ExecContext(ctx, "ROLLBACK")
		}
	}
	// For package database/sql the transaction ends with a ROLLBACK more, which does nothing. It has a limit, too, because the client
	// library watches the context of the statement before it as long as nobody closes that one's rows.
	var rows sqldriver.Rows
	inside(conn, func(c sqldriver.Conn) {
		asker, is := c.(sqldriver.QueryerContext)
		if err == nil && !is {
			err = errAnswer
		}
		if err == nil {
			rows, err = asker.QueryContext(ctx, last, nil)
		}
		if err != nil {
			_ = c.Close() // so that the ROLLBACK does not wait
		}
	})
	_ = tx.Rollback()
	if err != nil {
		// Not before: the pool takes a connection back only when its transaction has ended, and waits for that.
		discard(conn)
		return
	}
	inside(conn, func(sqldriver.Conn) { _ = rows.Close() })
}

// inside calls f with the client library's connection. The error is not that of f: at [sqldriver.ErrBadConn] the pool would wait for the
// end of the transaction.
func inside(conn *sql.Conn, f func(sqldriver.Conn)) {
	_ = conn.Raw(func(c any) error {
		if c, is := c.(sqldriver.Conn); is {
			f(c)
		}
		return nil
	})
}

// outcome judges the error of a commit. Only these say that it was not applied: answers of the server, and that it was not sent.
func outcome(err error) error {
	if err == nil || hasCode(err, codeDeadlock, codeCertification) || hasCode(err, readOnlyCodes...) || errors.Is(err, sqldriver.ErrBadConn) {
		return classify(err)
	}
	if err = classify(err); errors.Is(err, driver.ErrDenied) { // that would say that nothing was written
		err = errors.New(driver.ErrorText(err))
	}
	return driver.Errorf("%w: %w", ErrInDoubt, err)
}
