package mysql

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// Lasting refusals are distinguished from others, and show neither user nor password.
func TestDenied(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	admin := pool(t, s.AdminURL())
	run(t, admin, "CREATE DATABASE other", "CREATE USER hiddenlocked IDENTIFIED BY 'secret-locked' ACCOUNT LOCK",
		"GRANT ALL ON app.* TO hiddenlocked", "CREATE USER hiddenless IDENTIFIED BY 'secret-less'", "CREATE TABLE seen (a int)",
		"GRANT SELECT ON app.seen TO hiddenless")
	for what, at := range map[string]string{
		"wrong password":     "mysql://app:secret-wrong@" + s.Addr() + "/app",
		"no password":        "mysql://app@" + s.Addr() + "/app",
		"unknown user":       "mysql://hiddennobody:secret-wrong@" + s.Addr() + "/app",
		"locked account":     "mysql://hiddenlocked:secret-locked@" + s.Addr() + "/app",
		"no such database":   strings.Replace(s.AdminURL(), "/app", "/none", 1),
		"another's database": strings.Replace(s.URL(), "/app", "/other", 1),
		"no right to create": "mysql://hiddenless:secret-less@" + s.Addr() + "/app",
	} {
		_, err := Open(t.Context(), at)
		if !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") ||
			strings.Contains(err.Error(), mysqltest.AppPassword) {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, admin, Schema)
	if _, err := Open(t.Context(), "mysql://hiddenless:secret-less@"+s.Addr()+"/app"); !errors.Is(err, driver.ErrDenied) ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("no right to the table: %v", err)
	}
}

// A user who may only read sees the locks, and is refused everything else, for good.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	if _, err := openAt(t, s.URL()).TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	at := makeUser(t, s, "SELECT")
	if _, err := Open(t.Context(), at); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("opened without the right to write: %v", err)
	}
	l, err := driver.OpenForReading(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Owner != "owner a" {
		t.Error(r, err)
	}
	for r, err := range l.Capabilities().Lister.List(t.Context(), "") {
		if err != nil || r.Owner != "owner a" {
			t.Error(r, err)
		}
	}
	if _, err := l.TryAcquire(t.Context(), request("m", "b")); !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), leastUser) {
		t.Errorf("acquire: %v", err)
	}
}

// A server that becomes read-only is refused, also to a user who might write there. That does not last.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	admin := pool(t, s.AdminURL())
	for _, at := range []string{s.URL(), s.AdminURL()} {
		l := openAt(t, at, WithCommandTimeout(2*time.Second))
		lease, err := l.TryAcquire(t.Context(), request("n", at))
		if err != nil {
			t.Fatal(err)
		}
		run(t, admin, "SET GLOBAL read_only = ON")
		for what, call := range map[string]func(context.Context) error{
			"renew":   func(ctx context.Context) error { _, err := l.Renew(ctx, lease); return err },
			"acquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("m", "b")); return err },
			"inspect": func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := call(ctx); err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("%s: %v", what, err)
			}
			cancel()
		}
		_, err = Open(t.Context(), at)
		if err == nil || driver.OutcomeKnown(err) {
			t.Errorf("opened: %v", err)
		}
		reader, err := driver.OpenForReading(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := reader.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token {
			t.Errorf("reading on a replica: %v, %v", r, err)
		}
		_ = reader.Close(t.Context())
		run(t, admin, "SET GLOBAL read_only = OFF")
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Error(err)
		}
		released(t, l, lease, err)
	}
}

// Too many connections, and a server that does not run, are not lasting.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{SQL: []string{"SET GLOBAL max_connections = 10;"}})
	admin := pool(t, s.AdminURL())
	var taken []interface{ Close() error }
	for range 11 { // one more, for administrators
		if c, err := admin.Conn(t.Context()); err == nil {
			taken = append(taken, c)
		}
	}
	_, err := Open(t.Context(), s.URL(), WithCommandTimeout(time.Second))
	if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "1040") {
		t.Errorf("too many connections: %v", err)
	}
	for _, c := range taken {
		_ = c.Close()
	}
	l := openAt(t, s.URL(), WithCommandTimeout(time.Second))
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.TryAcquire(ctx, request("n", "a")); err == nil || driver.OutcomeKnown(err) || !driver.NotSent(err) {
		t.Errorf("%v, not sent: %v", err, driver.NotSent(err))
	}
	if err := s.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("n", "b"))
	released(t, l, lease, err)
}
