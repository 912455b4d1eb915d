package holdfastcontainers

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
)

const (
	postgresUser     = "postgres"
	postgresPassword = "holdfastcontainers"
)

// PostgreSQL is a server, and a database of the test's own that is removed at its end.
type PostgreSQL struct {
	URL  string // of the test's database, for holdfast.Open, pgx and libpq; with user and password
	Host string // the server's address

	tb testing.TB
}

// Postgres returns a server that is ready. If it cannot be started, it ends the test.
func Postgres(tb testing.TB, opts ...Option) *PostgreSQL {
	tb.Helper()
	host := single(tb, kindPostgres, "Postgres", cmp.Or(os.Getenv(PostgresImageVariable), DefaultPostgresImage), opts)
	server, name := postgresURL(host, "postgres"), "holdfast_"+strings.ToLower(rand.Text())
	if err := onPostgres(tb.Context(), server, "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("holdfastcontainers: create database %s: %v", name, err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if err := onPostgres(ctx, server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("holdfastcontainers: remove database %s: %v", name, err)
		}
	})
	return &PostgreSQL{URL: postgresURL(host, name), Host: host, tb: tb}
}

// Client returns a client for the test's database. It is shut down at the end of the test.
func (p *PostgreSQL) Client(opts ...holdfast.ClientOption) *holdfast.Client {
	p.tb.Helper()
	return open(p.tb, p.URL, opts)
}

func postgresURL(host, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(postgresUser, postgresPassword), Host: host, Path: "/" + database,
		RawQuery: "sslmode=disable"}
	return u.String()
}

// onPostgres runs a statement.
func onPostgres(ctx context.Context, at, statement string) error {
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, statement)
	_ = c.Close(ctx)
	return err
}
