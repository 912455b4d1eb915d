package postgres

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

var discard = slog.New(slog.DiscardHandler)

// bounded is the test's context with a limit that ends it before go test does.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// open opens a Locker.
func open(t testing.TB, rawURL string, opts ...Option) *Locker {
	t.Helper()
	l, err := Open(bounded(t), rawURL, append([]Option{WithLogger(discard)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	return l
}

func closeLocker(t testing.TB, l driver.Locker) {
	t.Helper()
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// client is a connection of another program.
func client(t testing.TB, rawURL string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(bounded(t), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// run runs statements of another program.
func run(t testing.TB, c *pgx.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := c.Exec(bounded(t), statement, args...); err != nil {
		t.Fatal(statement, err)
	}
}

// scan reads one value.
func scan[T any](t testing.TB, c *pgx.Conn, query string, args ...any) (v T) {
	t.Helper()
	if err := c.QueryRow(bounded(t), query, args...).Scan(&v); err != nil {
		t.Fatal(query, err)
	}
	return v
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner of " + id, TTL: 30 * time.Second}
}

func acquire(t testing.TB, l driver.Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// queryEscape escapes a value of a parameter. PostgreSQL does not know "+" for a space.
func queryEscape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
