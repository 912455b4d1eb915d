package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Check refuses a transaction that a statement has committed: it would guard nothing. It changes no other savepoint.
func TestCheckNeedsATransaction(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	hold := guard.Unnoticed(t.Context(), g.acquire(t, "a"))
	for statement, want := range map[string]error{"DO 1": nil, "COMMIT": guard.ErrTransactionEnded,
		"TRUNCATE TABLE " + g.table: guard.ErrTransactionEnded} {
		tx, err := g.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if err := g.guard.Check(t.Context(), tx, hold); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", statement, err, want)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := g.guard.Check(t.Context(), tx, hold); !errors.Is(err, guard.ErrTransactionEnded) {
			t.Errorf("%s: after the ROLLBACK: %v", statement, err)
		}
	}
	if err := g.guard.Do(t.Context(), hold, func(ctx context.Context, tx *sql.Tx) error { // such as that of another lock
		return g.guard.Check(ctx, tx, hold)
	}); err != nil {
		t.Errorf("within Do: %v", err)
	}
}

// While the program uses up its pool, Do gives up after the limit of a step, and not at the end of the lock.
func TestGuardWithoutAFreeConnection(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	hold := guard.Unnoticed(t.Context(), g.acquire(t, "a"))
	g.db.SetMaxOpenConns(1)
	g.guard.stepLimit = 300 * time.Millisecond
	used, err := g.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do := func() error {
		return locktest.Within(t, 20*time.Second, "Do without a connection", func() error {
			return g.guard.Do(t.Context(), hold, func(context.Context, *sql.Tx) error { return nil })
		})
	}
	if err := do(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no connection was free") ||
		!strings.Contains(err.Error(), "within 300ms") {
		t.Error(err)
	}
	if err := used.Close(); err != nil {
		t.Fatal(err)
	}
	g.guard.stepLimit = 10 * time.Second
	if err := do(); err != nil {
		t.Error(err)
	}
}

// The guard of a Galera cluster changes the row. It passes after a renewal, although the transaction has an older snapshot.
func TestGaleraGuardAfterARenewal(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	server := *g.l.store.server.Load()
	server.galera = true
	g.guard.change = server.guardChange()
	conn, err := g.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		lease := g.acquire(t, "a")
		if _, err := conn.ExecContext(t.Context(), "SET SESSION innodb_snapshot_isolation = ON"); err != nil { // as in MariaDB 11.6
			t.Fatal(err)
		}
		tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+g.table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if lease, err = g.l.Renew(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if err := g.guard.Check(t.Context(), tx, guard.Unnoticed(t.Context(), lease)); err != nil {
			t.Errorf("%v: %v", level, err)
		}
		var setting string
		if err := tx.QueryRowContext(t.Context(), "SELECT @@innodb_snapshot_isolation").Scan(&setting); err != nil || setting != "1" {
			t.Errorf("%v: afterwards innodb_snapshot_isolation is %s, %v", level, setting, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := g.l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
	}
}
