package mysql

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { mysqltest.Main(m) }

// with adds parameters to a URL.
var with = serverprocess.WithParams

// openAt makes a Locker that is closed at the end of the test.
func openAt(t testing.TB, rawURL string, opts ...Option) *Locker {
	t.Helper()
	l, err := Open(t.Context(), rawURL, append([]Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	return l
}

// quiet opens a Locker that logs nothing.
func quiet(c *config) { c.logger = slog.New(slog.DiscardHandler) }

func closeAtEnd(t testing.TB, l *Locker) {
	t.Helper()
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// storeAt makes the store of a Locker that probes nothing.
func storeAt(t testing.TB, rawURL string, opts ...Option) *store {
	t.Helper()
	l, err := Open(t.Context(), rawURL, append(opts, quiet, unprobed)...)
	if err == nil {
		closeAtEnd(t, l)
		err = l.store.prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	l.store.config.onlyReads = false
	return l.store
}

// unprobed opens a Locker that writes nothing by itself.
func unprobed(c *config) { c.onlyReads = true }

// pool is a program's own pool for a URL, with settings of the client library.
func pool(t testing.TB, rawURL string, set ...func(*gomysql.Config)) *sql.DB {
	t.Helper()
	hosts, _, err := parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		s(hosts[0])
	}
	connector, err := gomysql.NewConnector(hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// run makes statements, as a person or another program does.
func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// tableOf is the quoted table of a Locker.
func tableOf(l *Locker) string { return l.store.server.Load().table }

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner " + id, TTL: time.Minute}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// released releases a lease, and closes nothing.
func released(t testing.TB, l *Locker, lease driver.Lease, err error) {
	t.Helper()
	if err == nil {
		err = l.Release(context.WithoutCancel(t.Context()), lease)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
