package postgres

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// Acquires that wait for rows leave a connection to renewals: those of many locks whose last holder still has a guarded
// transaction would otherwise end the leases of this process.
func TestAcquiresLeaveAConnection(t *testing.T) {
	t.Parallel()
	const acquires = 12
	at := postgrestest.URL(t)
	l := open(t, victim(t, at))
	mine := acquire(t, l, request("mine", "a"))
	run(t, client(t, at), `INSERT INTO holdfast_locks (name, token, holder, owner, ttl, expires, acquired_at, renewed_at)
		SELECT 'other ' || n, 1, '', '', 1000, now(), now(), now() FROM generate_series(0, $1) AS n`, acquires)
	guarding := client(t, at)
	run(t, guarding, `BEGIN`)
	run(t, guarding, `SELECT FROM holdfast_locks WHERE name LIKE 'other %' FOR KEY SHARE`)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range acquires {
		all.Go(func() {
			for ctx.Err() == nil {
				wantHeld(t, l, request("other "+string(rune('0'+n%10)), "b"))
			}
		})
	}
	waitsFor(t, client(t, at), "Lock")
	if _, err := l.Renew(bounded(t), mine); err != nil {
		t.Error(err)
	}
	stop()
	all.Wait()
	for connections, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3} {
		if s := newSlots(connections); cap(s.quick)+cap(s.patient) != want {
			t.Errorf("of %d connections acquires use %d and %d, want %d", connections, cap(s.quick), cap(s.patient), want)
		}
	}
}

// A program that follows notifications itself lends its settings, and not what it does with a notification.
func TestPoolOfAProgramThatListens(t *testing.T) {
	t.Parallel()
	settings, err := pgxpool.ParseConfig(postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	var theirs atomic.Int32
	settings.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { theirs.Add(1) }
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := New(bounded(t), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	held := acquire(t, l, request("job", "a"))
	woken := wakeupsOf(t, l, "job", "w")
	wantHeld(t, l, waiting("job", "b", "w"))
	if err := l.Release(bounded(t), held); err != nil {
		t.Fatal(err)
	}
	wantWakeup(t, woken, driver.MayBeFree)
	if n := theirs.Load(); n > 0 {
		t.Errorf("the program was given %d notifications of the Locker", n)
	}
}

// Warnings that say nothing about a commit change no outcome.
func TestHarmlessWarnings(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	run(t, client(t, at), `CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE WARNING ''look''; RETURN NEW; END'`)
	run(t, client(t, at), `CREATE TRIGGER warn BEFORE INSERT OR UPDATE ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION warn()`)
	lease := acquire(t, l, request("job", "a"))
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Error(err)
	}
	c := client(t, at).PgConn()
	for routine, counts := range map[string]bool{
		"GetNewTransactionId": false, "GetNewMultiXactId": false, "asyncQueueFillWarning": false,
		"SyncRepWaitForLSN": true, "": true, // also of a server that does not name it
	} {
		delete(c.CustomData(), warning)
		noteWarning(c, &pgconn.Notice{SeverityUnlocalized: "WARNING", Message: "look", Routine: routine})
		if _, noted := c.CustomData()[warning]; noted != counts {
			t.Errorf("a warning of %q counts: %v", routine, noted)
		}
	}
}

// A *sql.DB of pgx's driver lends its settings. Any other cannot show the server's warnings, and is refused.
func TestNewDB(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	for name, refused := range map[string]bool{"pgx": false, "postgres": true} { // of pgx, and of lib/pq
		db, err := sql.Open(name, with(at, "sslmode=disable"))
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewDB(bounded(t), db)
		if refused {
			wantError(t, err, driver.ErrInvalid, "pgx/v5/stdlib", "pq")
		} else if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil { // the Locker has connections of its own
			t.Error(err)
		}
		if !refused {
			lease := acquire(t, l, request("job", "a"))
			if _, err := l.Renew(bounded(t), lease); err != nil {
				t.Error(err)
			}
			closeLocker(t, l)
		}
	}
}

// A database whose connection string is malformed says so at its first use. What its driver says has the string in it.
func TestNoPasswordOfAMalformedDatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pgx", "postgres"} {
		for _, at := range []string{"postgres://user:s3cr3t/x@127.0.0.1:1/app", "postgres://user:%s3cr3t@127.0.0.1:1/app",
			"host=127.0.0.1 port=1 password='s3cr3t", "host=127.0.0.1 port=1 password=a s3cr3t dbname=x"} {
			if name == "pgx" && strings.Contains(at, "password=a ") {
				continue // to pgx that is a parameter
			}
			db, err := sql.Open(name, at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			fence, err := NewSQLFence(db, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{errOf(NewDB(bounded(t), db)), fence.Raise(bounded(t), "job", 1)} {
				if wantError(t, err, driver.ErrInvalid, "connection string"); err != nil && strings.Contains(err.Error(), "3cr3t") {
					t.Errorf("shows the password: %v", err)
				}
			}
		}
	}
}

// A parameter that the server refuses is no damaged row. Partitions and tables with children have keys that do not hold for
// all rows.
func TestParametersAndTablesThatAreRefused(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	closeLocker(t, open(t, at))
	_, err := Open(bounded(t), with(at, "timezone=Nowhere"))
	wantError(t, err, driver.ErrDenied, "Nowhere", "PGOPTIONS")
	run(t, client(t, at), `CREATE TABLE child () INHERITS (holdfast_locks)`)
	_, err = Open(bounded(t), at)
	wantError(t, err, driver.ErrDamaged, "partitioned")
}
