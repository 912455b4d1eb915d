// Package postgrestest gives tests a real PostgreSQL: it fetches or finds the programs, starts the servers
// that a test needs on loopback, and removes them at the end. So "go test" needs no preparation on a new
// machine.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { postgrestest.Main(m) }
//
// All tests of the package share the server of [URL], which starts when a test first needs it; each test has
// a database of its own. Tests that stop or pause servers, or change their settings, start their own with
// [Start].
//
// If no server can be started, the test fails and says what to do.
package postgrestest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURL names the variable that makes the tests use a server that is running already. Its user may
// create databases.
const EnvURL = testservers.EnvPostgresURL

const sqlTimeout = time.Minute

// Main runs the tests, stops the shared server, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*Server, error) { return New(ctx, dir, Options{}) })

// URL is the URL of a new database of the server that the tests share. The database is dropped at the
// end of the test, with the connections to it.
func URL(tb testing.TB) string {
	tb.Helper()
	admin := os.Getenv(EnvURL)
	if admin == "" {
		s := shared(tb)
		created := s.Database(tb)
		drop(tb, s.AdminURL(""), created)
		return created
	}
	created, err := createDatabase(tb.Context(), admin, "")
	if err != nil {
		tb.Fatal(err)
	}
	drop(tb, admin, created)
	return created
}

// createDatabase creates a database for owner, by default the user of the URL, and returns the URL of
// it for the user of admin.
func createDatabase(ctx context.Context, admin, owner string) (string, error) {
	name := "test_" + strings.ToLower(rand.Text())
	statement := "CREATE DATABASE " + name
	if owner != "" {
		statement += " OWNER " + owner
	}
	if _, err := query(ctx, admin, statement); err != nil {
		return "", err
	}
	return WithDatabase(admin, name)
}

func drop(tb testing.TB, admin, created string) {
	tb.Helper()
	u, err := url.Parse(created)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if _, err := query(context.Background(), admin, "DROP DATABASE IF EXISTS "+u.Path[1:]+" WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
}

// WithDatabase is a URL with another database.
func WithDatabase(raw, name string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("this is no URL of a database") // the error would show the password
	}
	u.Path = "/" + name
	return u.String(), nil
}

// SQL runs statements with psql at a URL, one after another, and returns the rows of the answers: a line
// for each, the columns separated by "|". It is for what a foreign program does; the test fails if a
// statement fails.
func SQL(tb testing.TB, at string, statements ...string) string {
	tb.Helper()
	out, err := query(tb.Context(), at, statements...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TrySQL is like [SQL], and returns the error.
func TrySQL(ctx context.Context, at string, statements ...string) (string, error) {
	return query(ctx, at, statements...)
}
