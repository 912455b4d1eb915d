package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// testHold is a hold that nobody renews and that does not notice its end, like that of a paused
// process. It ends when the test says so.
type testHold struct {
	lease driver.Lease
	ctx   context.Context
	err   error
}

func (h testHold) Lease() driver.Lease      { return h.lease }
func (h testHold) Context() context.Context { return h.ctx }
func (h testHold) Err() error               { return errors.Join(h.err, context.Cause(h.ctx)) }

// statement runs a statement in a guarded transaction. If to is given, it reads one row.
type statement func(ctx context.Context, query string, to ...any) error

// guardKind is a guard of transactions of one kind.
type guardKind interface {
	do(ctx context.Context, hold guard.Hold, fn func(context.Context, statement) error) error
	// begin begins a transaction. check is Guard.Check.
	begin(ctx context.Context) (run statement, check func(guard.Hold) error, commit, rollback func() error)
}

type pgxKind struct {
	guard *Guard[pgx.Tx]
}

func pgxStatement(tx pgx.Tx) statement {
	return func(ctx context.Context, query string, to ...any) (err error) {
		if len(to) > 0 {
			return tx.QueryRow(ctx, query).Scan(to...)
		}
		_, err = tx.Exec(ctx, query)
		return err
	}
}

func (k pgxKind) do(ctx context.Context, hold guard.Hold, fn func(context.Context, statement) error) error {
	return k.guard.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, pgxStatement(tx)) })
}

func (k pgxKind) begin(ctx context.Context) (statement, func(guard.Hold) error, func() error, func() error) {
	tx, err := k.guard.begin(ctx)
	if err != nil {
		panic(err)
	}
	return pgxStatement(tx), func(h guard.Hold) error { return k.guard.Check(ctx, tx, h) },
		func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }
}

type sqlKind struct {
	guard *Guard[*sql.Tx]
}

func sqlStatement(tx *sql.Tx) statement {
	return func(ctx context.Context, query string, to ...any) (err error) {
		if len(to) > 0 {
			return tx.QueryRowContext(ctx, query).Scan(to...)
		}
		_, err = tx.ExecContext(ctx, query)
		return err
	}
}

func (k sqlKind) do(ctx context.Context, hold guard.Hold, fn func(context.Context, statement) error) error {
	return k.guard.Do(ctx, hold, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlStatement(tx)) })
}

func (k sqlKind) begin(ctx context.Context) (statement, func(guard.Hold) error, func() error, func() error) {
	tx, err := k.guard.begin(ctx)
	if err != nil {
		panic(err)
	}
	return sqlStatement(tx), func(h guard.Hold) error { return k.guard.Check(ctx, tx, h) }, tx.Commit, tx.Rollback
}

// guardFixture is a lock, and a table to which its holders write.
type guardFixture struct {
	t      *testing.T
	url    string
	locker *Locker
	db     *pgxpool.Pool
	guardKind
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// sqlLevels are the levels of database/sql.
var sqlLevels = map[pgx.TxIsoLevel]sql.IsolationLevel{
	pgx.ReadCommitted: sql.LevelReadCommitted, pgx.RepeatableRead: sql.LevelRepeatableRead, pgx.Serializable: sql.LevelSerializable}

func newGuardFixture(t *testing.T, driverName string, level pgx.TxIsoLevel) *guardFixture {
	t.Helper()
	return newGuardFixtureAt(t, postgrestest.URL(t), driverName, level)
}

func newGuardFixtureAt(t *testing.T, url, driverName string, level pgx.TxIsoLevel) *guardFixture {
	t.Helper()
	locker := open(t, url)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	g := &guardFixture{t: t, url: url, locker: locker, db: db}
	t.Cleanup(db.Close)
	g.exec(`CREATE TABLE journal (n bigserial PRIMARY KEY, line text)`)
	g.connect(url, driverName, level)
	return g
}

// connect sets the guard's kind, and the database to which its transactions go.
func (g *guardFixture) connect(url, driverName string, level pgx.TxIsoLevel) {
	g.t.Helper()
	if driverName == "pgx pool" {
		db, err := pgxpool.New(g.t.Context(), url)
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(db.Close)
		guard, err := NewGuard(g.locker, db, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			g.t.Fatal(err)
		}
		g.guardKind = pgxKind{guard}
		return
	}
	db, err := sql.Open(driverName, url)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = db.Close() })
	guard, err := NewSQLGuard(g.locker, db, &sql.TxOptions{Isolation: sqlLevels[level]})
	if err != nil {
		g.t.Fatal(err)
	}
	g.guardKind = sqlKind{guard}
}

// combinations are kinds of transactions, each on an isolation level.
var combinations = []struct {
	driverName string // of database/sql, or "pgx pool"
	level      pgx.TxIsoLevel
}{
	{"pgx pool", pgx.ReadCommitted}, {"pgx pool", pgx.RepeatableRead}, {"pgx pool", pgx.Serializable},
	{"pgx", pgx.ReadCommitted}, {"postgres", pgx.ReadCommitted}, {"postgres", pgx.RepeatableRead},
}

// eachGuard runs a test with each combination.
func eachGuard(t *testing.T, test func(t *testing.T, g *guardFixture, level pgx.TxIsoLevel)) {
	for _, c := range combinations {
		t.Run(c.driverName+"/"+string(c.level), func(t *testing.T) {
			t.Parallel()
			test(t, newGuardFixture(t, c.driverName, c.level), c.level)
		})
	}
}

func (g *guardFixture) exec(query string, args ...any) {
	g.t.Helper()
	if _, err := g.db.Exec(g.t.Context(), query, args...); err != nil {
		g.t.Fatal(err)
	}
}

// hold acquires the lock "job".
func (g *guardFixture) hold(id string) testHold {
	g.t.Helper()
	lease, err := g.locker.TryAcquire(g.t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID(id), Owner: id, TTL: time.Minute})
	if err != nil {
		g.t.Fatal(err)
	}
	return testHold{lease: lease, ctx: g.t.Context()}
}

// follow releases a hold, which does not notice, and acquires the lock for another.
func (g *guardFixture) follow(a testHold, id string) testHold {
	g.t.Helper()
	if err := g.locker.Release(g.t.Context(), a.lease); err != nil {
		g.t.Error(err)
	}
	return g.hold(id)
}

// expire ends a lease by the server's clock.
func (g *guardFixture) expire() {
	g.exec(`UPDATE holdfast_locks SET expires = clock_timestamp() - interval '1 second'`)
}

func note(line string) func(context.Context, statement) error {
	return func(ctx context.Context, run statement) error {
		return run(ctx, `INSERT INTO journal (line) VALUES ('`+line+`')`)
	}
}

// never is a function that must not run.
func (g *guardFixture) never(context.Context, statement) error {
	g.t.Error("the function was run although the hold is refused")
	return nil
}

func (g *guardFixture) wantLines(want string) {
	g.t.Helper()
	var got string
	if err := g.db.QueryRow(g.t.Context(), `SELECT coalesce(string_agg(line, ' ' ORDER BY n), '') FROM journal`).Scan(&got); err != nil {
		g.t.Fatal(err)
	}
	if got != want {
		g.t.Errorf("the journal says %q, want %q", got, want)
	}
}

func (g *guardFixture) wantErr(err, want error) {
	g.t.Helper()
	if !errors.Is(err, want) {
		g.t.Errorf("got %v, want %v", err, want)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "holdfast: guard ") {
		g.t.Errorf("the error does not begin with its operation: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		g.t.Errorf("the error shows a lease ID: %v", err)
	}
}

// waitBlocked waits until a statement of another connection waits for a lock.
func (g *guardFixture) waitBlocked() {
	g.t.Helper()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(2 * time.Millisecond) {
		var n int
		if err := g.db.QueryRow(g.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`).Scan(&n); err != nil {
			g.t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	g.t.Fatal("nothing waits")
}
