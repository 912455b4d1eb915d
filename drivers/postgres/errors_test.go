package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// The end of a call says what it waited for, and its own end once.
func TestWhatACallWaitedFor(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	expect := func(l *Locker, want string) {
		t.Helper()
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(short, request("job", "a"))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "context deadline exceeded ("+want) ||
			strings.Count(err.Error(), "deadline") != 1 {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	l := open(t, with(at, "pool_max_conns=1"))
	acquire(t, l, request("job", "before"))
	ctx, cancel := context.WithCancel(t.Context())
	taken, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.call(ctx, nil, func(ctx context.Context, _ *pgx.Conn) error { close(taken); <-ctx.Done(); return ctx.Err() })
	}()
	<-taken
	expect(l, "no connection was free")
	cancel()
	<-ended

	run(t, client(t, at), `BEGIN; LOCK TABLE holdfast_locks`) // ends with the connection
	expect(l, "the server has not answered)")

	other := server.Database(t)
	closeLocker(t, open(t, other))
	server.Set(t, "synchronous_standby_names", "nobody")
	expect(open(t, other), "the server has not answered; a commit waits for a synchronous standby")
	server.Set(t, "synchronous_standby_names", "")
}

// PgBouncer refuses parameters of a new connection that it does not pass on. That lasts, and the error says what to do.
func TestAPoolerRefusesAParameter(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	pooled := postgrestest.PgBouncer(t, server, postgrestest.TransactionMode).At(t, server.Database(t))
	for _, param := range []string{"search_path=public", "options=" + queryEscape("-c search_path=public")} {
		_, err := Open(bounded(t), with(pooled, param), WithLogger(discard))
		wantError(t, err, driver.ErrDenied, "unsupported startup parameter", "URL parameter schema")
	}
}

// auto_explain may send its plans as warnings. They change no outcome. The text of a warning that does is not shown: a plan has the
// values of its statement.
func TestPlansAsWarnings(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	admin, database := client(t, server.AdminURL(strings.TrimPrefix(u.Path, "/"))), pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	for _, setting := range []string{
		"session_preload_libraries = auto_explain", "auto_explain.log_min_duration = 0", "auto_explain.log_level = warning",
	} {
		run(t, admin, `ALTER DATABASE `+database+` SET `+setting)
	}
	l := open(t, at)
	lease := acquire(t, l, request("job", "a"))
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Error(err)
	}
	c := client(t, at).PgConn()
	noteWarning(c, &pgconn.Notice{SeverityUnlocalized: "WARNING", Message: "values: s3cr3t", Routine: "other", Code: "01000"})
	if text := c.CustomData()[warning]; text != `function "other", code "01000"; the text is not shown` {
		t.Errorf("noted: %s", text)
	}
}

// What a person must change at the table is reported at once.
func TestTablesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for code, change := range map[string]string{
		"0A000": `CREATE RULE nothing AS ON UPDATE TO holdfast_locks DO ALSO NOTHING`,
		"23503": `CREATE TABLE people (name text PRIMARY KEY); ALTER TABLE holdfast_locks ADD FOREIGN KEY (owner) REFERENCES people NOT VALID`,
		"55000": `ALTER TABLE holdfast_locks REPLICA IDENTITY NOTHING; CREATE PUBLICATION all_locks FOR TABLE holdfast_locks`,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			at := postgrestest.URL(t)
			l := open(t, at)
			if err := l.Release(bounded(t), acquire(t, l, request("job", "a"))); err != nil {
				t.Fatal(err)
			}
			run(t, client(t, at), change)
			_, err := l.TryAcquire(bounded(t), request("job", "b"))
			wantError(t, err, driver.ErrDenied, code)
		})
	}
}

// A server that panics while it commits may have committed: that is no refusal, whatever the code.
func TestExplainPanic(t *testing.T) {
	t.Parallel()
	l := open(t, postgrestest.URL(t))
	for _, code := range []string{codeDiskFull, codeDenied, "22P02"} {
		for severity, known := range map[string]bool{"PANIC": false, "ERROR": true} {
			answer := &pgconn.PgError{SeverityUnlocalized: severity, Code: code}
			err := l.explain(t.Context(), t.Context(), answer)
			if driver.OutcomeKnown(err) != known || !hasCode(err, code) {
				t.Errorf("%s %s: %v, known: %v", severity, code, err, driver.OutcomeKnown(err))
			}
			if doubtful := errors.Is(outcome(answer), ErrInDoubt); doubtful == known {
				t.Errorf("%s %s: of a guard's commit: in doubt: %v", severity, code, doubtful)
			}
		}
	}
	// A pooler that has lost the server answers in its place, with such codes and less than a panic.
	for code, want := range map[string]bool{"XX000": true, "58000": true, "25P04": true, "25P03": false, "23505": false} {
		if doubtful := errors.Is(outcome(&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: code}), ErrInDoubt); doubtful != want {
			t.Errorf("%s: of a guard's commit: in doubt: %v", code, doubtful)
		}
	}
	for code, want := range map[pqerror.Code]bool{codeDiskFull: true, "58030": true, "XX000": true, "25P04": true, "23505": false} {
		if doubtful := errors.Is(outcome(&pq.Error{Severity: "PANIK", Code: code}), ErrInDoubt); doubtful != want { // in the server's language
			t.Errorf("%s: of a guard's commit by another driver: in doubt: %v", code, doubtful)
		}
	}
}
