package postgrestest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// Modes of a pooler: what a client keeps a connection to the server for.
const (
	SessionMode     = "session"
	TransactionMode = "transaction"
	StatementMode   = "statement"
)

// Pooler is a running PgBouncer. Its methods are safe for concurrent use.
type Pooler struct{ *serverprocess.Server }

// PgBouncer starts a PgBouncer in front of a server, for this test alone. Where there is none, the test is
// skipped, and fails where the variable CI is set.
func PgBouncer(tb testing.TB, s *Server, mode string) *Pooler {
	tb.Helper()
	return PgBouncerAt(tb, s.Addr(), mode)
}

// PgBouncerAt is [PgBouncer] for a server at an address, host:port, that has the users of a [Server].
func PgBouncerAt(tb testing.TB, addr, mode string) *Pooler {
	tb.Helper()
	program, err := testservers.PgBouncer()
	if err != nil {
		serverprocess.Lacking(tb, err)
	}
	dir := tb.TempDir()
	host, port := hostPort(addr)
	settings := func(own string) string {
		return strings.Join([]string{
			"[databases]", fmt.Sprintf("* = host=%s port=%s", host, port),
			"[pgbouncer]", "pool_mode = " + mode, "listen_addr = " + serverprocess.Host, "listen_port = " + own, "unix_socket_dir =",
			"auth_type = scram-sha-256", "auth_file = " + filepath.Join(dir, "users"),
			"max_client_conn = 500", "default_pool_size = 10", "ignore_startup_parameters = extra_float_digits", "",
		}, "\n")
	}
	users := fmt.Sprintf("%q %q\n%q %q\n", AdminUser, AdminPassword, AppUser, AppPassword)
	if err := os.WriteFile(filepath.Join(dir, "users"), []byte(users), 0o600); err != nil {
		tb.Fatal(err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	s, err := serverprocess.StartOne(tb.Context(), dir, serverprocess.Config{
		Name: "PgBouncer", Program: program, Unprivileged: true,
		Args: func(string, string) []string { return []string{config} },
		Prepare: func(_ context.Context, own, _ string, _ func(string, ...string) error) error {
			return os.WriteFile(config, []byte(settings(own)), 0o600)
		},
	})
	return &Pooler{serverprocess.Owned(tb, s, err)}
}

// At is the URL of the same database, for the same user, through the pooler.
func (p *Pooler) At(tb testing.TB, raw string) string { tb.Helper(); return At(tb, raw, p.Addr()) }

func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err) // a server's address has both
	}
	return host, port
}

// Address is the URL of a database for a user. No server here has TLS.
func Address(addr, user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}
