package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// slowCommit makes each commit of a write to the journal take long, before it is decided.
func (g *guardFixture) slowCommit(body string) {
	g.exec(`CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + body + `; RETURN NULL; END $$`)
	g.exec(`CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION at_commit()`)
}

// A connection that ends while its commit is under way leaves the outcome open.
func TestGuardInDoubt(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		g.slowCommit(`PERFORM pg_sleep(60)`)
		done := make(chan error, 1)
		go func() { done <- g.do(t.Context(), a, note("a")) }()
		for killed := false; !killed; time.Sleep(5 * time.Millisecond) {
			if err := g.db.QueryRow(t.Context(), `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&killed); err != nil {
				t.Fatal(err)
			}
		}
		g.wantErr(<-done, ErrInDoubt)
	})
}

// A commit that the server refuses was not applied.
func TestGuardCommitRefused(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		g.slowCommit(`RAISE EXCEPTION 'no'`)
		err := g.do(t.Context(), a, note("a"))
		if sqlState(err) != "P0001" || errors.Is(err, ErrInDoubt) {
			t.Errorf("got %v", err)
		}
		g.wantLines("")
	})
}

// Once the commit is sent, the end of the caller's context does not leave its outcome open.
func TestGuardCommitOutlivesTheContext(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		g.slowCommit(`PERFORM pg_sleep(0.3)`)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.do(ctx, a, note("a")) }()
		for sleeping := false; !sleeping; time.Sleep(2 * time.Millisecond) {
			if err := g.db.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&sleeping); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		g.wantLines("a")
	})
}

// A statement_timeout does not end the commit's wait for a synchronous standby, in any version of the server: it would report
// a success, and a fail-over to the standby would forget what was written.
func TestGuardCommitWaitsForTheStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	standby := s.Standby(t, true)
	control := client(t, s.AdminURL(""))
	g := newGuardFixtureAt(t, victim(t, with(s.Database(t), "options=-c%20statement_timeout%3D1000")), "pgx pool", pgx.ReadCommitted)
	a := g.hold("secret a")
	if err := standby.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := standby.Resume(); err != nil {
			t.Fatal(err)
		}
	}()
	done := make(chan error, 1)
	go func() { done <- g.do(t.Context(), a, note("a")) }()
	pid := waitsFor(t, control, "SyncRep")
	select {
	case err := <-done:
		t.Fatalf("the wait has ended: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	run(t, control, `SELECT pg_terminate_backend($1)`, pid)
	g.wantErr(<-done, ErrInDoubt)
	// Some clients end a commit that takes too long by a request to the server. It answers with a success then, too.
	pq, err := sql.Open("postgres", g.url)
	if err != nil {
		t.Fatal(err)
	}
	settings := g.db.Config().ConnConfig
	settings.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 10 * time.Second}
	}
	for driverName, db := range map[string]*sql.DB{"pq": pq, "pgx": stdlib.OpenDB(*settings)} {
		defer func() { _ = db.Close() }()
		limited, err := NewSQLGuard(g.locker, db, nil)
		if err != nil {
			t.Fatal(err)
		}
		limited.commitLimit = time.Second
		if err := (sqlKind{limited}).do(t.Context(), a, note("a")); !errors.Is(err, ErrInDoubt) {
			t.Errorf("%s: the wait was cancelled: %v", driverName, err)
		}
	}
}
