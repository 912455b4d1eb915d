package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

func TestGuardCommits(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		for i := range 3 {
			if err := g.do(t.Context(), a, note(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		g.wantLines("0 1 2")
	})
}

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, level pgx.TxIsoLevel) {
		refused := func(h testHold, why string) {
			t.Helper()
			err := g.do(t.Context(), h, g.never)
			g.wantErr(err, driver.ErrLost)
			if err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("%v does not say %q", err, why)
			}
			run, check, _, rollback := g.begin(t.Context())
			if err := note("checked")(t.Context(), run); err != nil { // before the check: the program's order does not matter
				t.Error(err)
			}
			g.wantErr(check(h), driver.ErrLost)
			_ = rollback()
		}
		a := g.hold("secret a")
		earlier := a
		earlier.lease.Token--
		refused(earlier, "a later holder has token") // an ID that is used again is another grant
		later := a
		later.lease.Token++
		refused(later, "this holder's is")
		b := g.follow(a, "secret b")
		refused(a, "a later holder has token")
		g.expire()
		refused(b, "expired")
		c := g.hold("secret c")
		if err := g.locker.BreakNow(t.Context(), "job", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		refused(c, "")
		d := g.hold("secret d")
		if err := g.locker.Release(t.Context(), d.lease); err != nil {
			t.Fatal(err)
		}
		refused(d, "released")
		g.exec(`DELETE FROM holdfast_locks`)
		refused(d, "no row")
		g.wantLines("")
	})
}

// A lock that is broken gently stays with its holder until its lease expires.
func TestGuardOfABrokenLockCommitsUntilItExpires(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	a := g.hold("a")
	if err := g.locker.Break(t.Context(), "job", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := g.do(t.Context(), a, note("a")); err != nil {
		t.Error(err)
	}
	g.expire()
	g.wantErr(g.do(t.Context(), a, g.never), driver.ErrLost)
	g.wantLines("a")
}

func TestGuardRefusesAHoldThatEnds(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		ctx, lose := context.WithCancelCause(t.Context())
		ending := a
		ending.ctx = ctx
		g.wantErr(g.do(t.Context(), ending, func(ctx context.Context, run statement) error {
			if err := note("a")(ctx, run); err != nil {
				return err
			}
			lose(driver.ErrLost)
			<-ctx.Done()
			return nil
		}), driver.ErrLost)
		g.wantErr(g.do(t.Context(), ending, g.never), driver.ErrLost)
		over := a
		over.err = driver.ErrLost // its context has not ended yet
		g.wantErr(g.do(t.Context(), over, note("a")), driver.ErrLost)
		_, check, _, rollback := g.begin(t.Context())
		g.wantErr(check(over), driver.ErrLost)
		_ = rollback()
		ctx, cancel := context.WithCancel(t.Context())
		g.wantErr(g.do(ctx, a, func(inside context.Context, run statement) error {
			cancel()
			return note("a")(inside, run)
		}), context.Canceled)
		g.wantLines("")
	})
}

// The guard's error matches the end of its own hold, not of another.
func TestGuardReportsWhichHoldEnded(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	a := g.hold("secret a")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the outer hold: %w", driver.ErrLost))
	err := g.do(ctx, a, g.never)
	if err == nil || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "the outer hold") {
		t.Errorf("got %v", err)
	}
	a.ctx = ctx
	g.wantErr(g.do(t.Context(), a, g.never), driver.ErrLost)
	g.wantErr(g.do(ctx, a, g.never), driver.ErrLost)
}

// endingRow ends a context once it is read.
type endingRow struct {
	pgx.Row
	end func()
}

func (r endingRow) Scan(to ...any) error { defer r.end(); return r.Row.Scan(to...) }

// endingTx is a transaction that ends a context with the nth of the guard's statements.
type endingTx struct {
	pgx.Tx
	nth *int
	end func()
}

func (tx endingTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if *tx.nth--; *tx.nth == 0 {
		return endingRow{tx.Tx.QueryRow(ctx, query, args...), tx.end}
	}
	return tx.Tx.QueryRow(ctx, query, args...)
}

type endingDB struct {
	Beginner
	nth int
	end func()
}

func (db *endingDB) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginTx(ctx, options)
	return endingTx{tx, &db.nth, db.end}, err
}

// So it is also where another hold ends right after a statement of the guard's.
func TestGuardReportsWhichHoldEndedBetweenStatements(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	a := g.hold("secret a")
	for nth := range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		end := func() { cancel(fmt.Errorf("the outer hold: %w", driver.ErrLost)) }
		guard, err := NewGuard(g.locker, &endingDB{Beginner: g.db, nth: nth + 1, end: end}, pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = pgxKind{guard}.do(ctx, a, func(context.Context, statement) error { return nil })
		if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "the outer hold") {
			t.Errorf("after statement %d: %v", nth+1, err)
		}
	}
	g.wantLines("")
}

func TestGuardRollsBack(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		mine := errors.New("mine")
		err := g.do(t.Context(), a, func(ctx context.Context, run statement) error { return errors.Join(note("error")(ctx, run), mine) })
		if err == nil || err.Error() != "mine" {
			t.Errorf("got %v, want the function's own error", err)
		}
		func() {
			defer func() {
				if p := recover(); p != "oops" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = g.do(t.Context(), a, func(ctx context.Context, run statement) error {
				if err := note("panic")(ctx, run); err != nil {
					t.Error(err)
				}
				panic("oops")
			})
		}()
		if err := g.do(t.Context(), a, func(ctx context.Context, run statement) error {
			_ = note("failed")(ctx, run)
			_ = run(ctx, `SELECT 1/0`) // not returned
			return nil
		}); err == nil || errors.Is(err, ErrInDoubt) {
			t.Errorf("a transaction that has failed: %v", err)
		}
		g.wantLines("")
		if err := g.do(t.Context(), a, note("a")); err != nil {
			t.Error(err)
		}
		g.wantLines("a")
	})
}

func TestGuardEndedByTheFunction(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	a := g.hold("secret a")
	inPgx := g.guardKind.(pgxKind).guard
	g.wantErr(inPgx.Do(t.Context(), a, func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }), guard.ErrTransactionEnded)
	other := newGuardFixtureAt(t, postgrestest.URL(t), "pgx", pgx.Serializable)
	b := other.hold("secret b")
	err := other.guardKind.(sqlKind).guard.Do(t.Context(), b, func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() })
	g.wantErr(err, guard.ErrTransactionEnded)
	// Also by a statement, which pgx and database/sql do not see.
	for _, statement := range []string{"COMMIT", "COMMIT AND CHAIN", "ROLLBACK"} {
		g.wantErr(inPgx.Do(t.Context(), a, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return err
		}), guard.ErrTransactionEnded)
		err := other.guardKind.(sqlKind).guard.Do(t.Context(), b, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
		g.wantErr(err, guard.ErrTransactionEnded)
	}
}

func TestGuardArguments(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	for _, lease := range []driver.Lease{{Name: "job"}, {Name: "job", Token: 1 << 63}, {Token: 1},
		{Name: "job", Token: 1, Mode: driver.Shared}} {
		g.wantErr(g.do(t.Context(), testHold{lease: lease, ctx: t.Context()}, g.never), driver.ErrInvalid)
	}
	inPgx := g.guardKind.(pgxKind).guard
	g.wantErr(inPgx.Do(t.Context(), nil, nil), driver.ErrInvalid)
	g.wantErr(inPgx.Do(t.Context(), g.hold("a"), nil), driver.ErrInvalid)
	_, err := NewGuard(nil, g.db, pgx.TxOptions{})
	g.wantErr(err, driver.ErrInvalid)
	_, err = NewGuard(g.locker, nil, pgx.TxOptions{})
	g.wantErr(err, driver.ErrInvalid)
	_, err = NewSQLGuard(g.locker, nil, nil)
	g.wantErr(err, driver.ErrInvalid)
	_, err = NewGuard(wrapping{wrapping{g.locker}}, g.db, pgx.TxOptions{})
	if err != nil {
		t.Error(err)
	}
	_, err = NewGuard(wrapping{nil}, g.db, pgx.TxOptions{})
	g.wantErr(err, driver.ErrInvalid)
}

// wrapping is a Locker that wraps one of this driver.
type wrapping struct{ driver.Locker }

func (w wrapping) Unwrap() driver.Locker { return w.Locker }

// The key of name and token is dropped while programs run. The next grant would no longer wait for guarded transactions, so none
// commits until the key is there again.
func TestGuardNeedsTheKey(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("a")
		g.wantErr(g.do(t.Context(), a, note("a")), nil)
		g.exec(`ALTER TABLE holdfast_locks DROP CONSTRAINT holdfast_locks_name_token_key`)
		for _, key := range []string{"", `CREATE INDEX ON holdfast_locks (name, token)`,
			`CREATE UNIQUE INDEX ON holdfast_locks (name, token) WHERE token > 0`} {
			g.exec(key)
			g.wantErr(g.do(t.Context(), a, note("b")), driver.ErrDamaged)
			_, check, _, rollback := g.begin(t.Context())
			g.wantErr(check(a), driver.ErrDamaged)
			_ = rollback()
		}
		g.exec(`CREATE UNIQUE INDEX CONCURRENTLY key ON holdfast_locks (name, token)`)
		g.wantErr(g.do(t.Context(), a, note("c")), nil)
		// A transaction whose snapshot has seen the key.
		run, check, _, rollback := g.begin(t.Context())
		if err := run(t.Context(), `SELECT FROM journal`); err != nil {
			t.Fatal(err)
		}
		g.exec(`DROP INDEX key`)
		g.wantErr(check(a), driver.ErrDamaged)
		_ = rollback()
		g.wantLines("a c")
	})
}

// Two holders add to a number, which each reads before. The second is granted the lock while the first one's transaction is open,
// if nothing keeps the row's key.
func TestNoUpdateIsLostWithoutTheKey(t *testing.T) {
	t.Parallel()
	g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
	g.exec(`CREATE TABLE sum AS SELECT 0 AS n`)
	add := func(amount int, between func()) func(context.Context, statement) error {
		return func(ctx context.Context, run statement) error {
			var n int
			if err := run(ctx, `SELECT n FROM sum`, &n); err != nil {
				return err
			}
			between()
			return run(ctx, fmt.Sprintf(`UPDATE sum SET n = %d`, n+amount))
		}
	}
	a := g.hold("a")
	g.exec(`ALTER TABLE holdfast_locks DROP CONSTRAINT holdfast_locks_name_token_key`)
	want, accepted := 0, 0
	run, check, commit, rollback := g.begin(t.Context())
	defer func() { _ = rollback() }()
	var n int
	if err := run(t.Context(), `SELECT n FROM sum`, &n); err != nil {
		t.Fatal(err)
	}
	first := check(a)
	b := g.follow(a, "b") // is granted at once
	if g.do(t.Context(), b, add(10, func() {})) == nil {
		want, accepted = want+10, accepted+1
	}
	if first == nil && run(t.Context(), fmt.Sprintf(`UPDATE sum SET n = %d`, n+1)) == nil && commit() == nil {
		want, accepted = want+1, accepted+1
	}
	if err := g.db.QueryRow(t.Context(), `SELECT n FROM sum`).Scan(&n); err != nil || n != want {
		t.Errorf("%d guarded transactions were committed, and the sum is %d instead of %d, %v", accepted, n, want, err)
	}
}
