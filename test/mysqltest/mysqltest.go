// Package mysqltest gives tests a real MariaDB: it fetches or finds the program, starts the servers that a test needs on loopback, and
// removes them at the end. So "go test" needs no preparation on a new machine. Short runs leave these tests out.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { mysqltest.Main(m) }
//
// All tests of the package share the server of [URL], which starts when a test first needs it; each test has a table of its own. Tests that
// stop or pause servers, or change their settings, start their own with [Start].
package mysqltest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURL names the variable that makes the tests use a server that is running already. Its user may do everything.
const EnvURL = testservers.EnvMySQLURL

// The users of every server: one who may do everything, and one who may do everything in the database.
const (
	AdminUser     = "admin"
	AdminPassword = "mysqltest-admin-password"
	AppUser       = "app"
	AppPassword   = "mysqltest-app-password"
	Database      = "app"
)

// reason says why short runs leave out what needs a server.
const reason = "starts MariaDB"

// Main runs the tests, stops the shared server, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

// Options of a server.
type Options struct {
	// Args are arguments of the program, such as "--log-bin=binlog".
	Args []string
	// Env are variables, such as "TZ=Europe/Berlin". Without that one the server is in UTC, whatever zone the machine has.
	Env []string
	// SQL are statements that run at each start, each in a line of its own.
	SQL []string
	// Clock is the server's wall clock; nil means the machine's.
	Clock *serverprocess.Clock

	// prepare, if not nil, prepares the folder of the data further. run runs the server with more arguments, until it ends.
	prepare func(data string, run func(more ...string) error) error
}

// Server is a running server. Its methods are safe for concurrent use.
type Server struct{ *serverprocess.Server }

// URL is that of the database for its user, without parameters.
func (s *Server) URL() string { return At(s.Addr()) }

// AdminURL is that of the database for the user who may do everything.
func (s *Server) AdminURL() string {
	return "mysql://" + AdminUser + ":" + AdminPassword + "@" + s.Addr() + "/" + Database
}

// At is the URL of the database of a server of this package, or of a proxy before one, at an address.
func At(addr string) string {
	return "mysql://" + AppUser + ":" + AppPassword + "@" + addr + "/" + Database
}

// Start starts a server for this test alone, and removes it at the end.
func Start(tb testing.TB, opts Options) *Server {
	tb.Helper()
	serverprocess.Long(tb, reason)
	s, err := New(tb.Context(), tb.TempDir(), opts)
	return serverprocess.Owned(tb, s, err)
}

// New starts a server with its data under dir. The caller removes it.
func New(ctx context.Context, dir string, opts Options) (*Server, error) {
	program, err := reachable(ctx)
	if err != nil {
		return nil, err
	}
	// A server that starts removes the temporary tables of all others from their common folder, so each has one of its own.
	on := func(data string, more ...string) []string {
		return append([]string{"--no-defaults", "--basedir=" + program.Base, "--lc-messages-dir=" + program.Share, "--datadir=" + data,
			"--tmpdir=" + filepath.Join(data, ".tmp")}, more...)
	}
	s, err := serverprocess.StartOne(ctx, dir, serverprocess.Config{
		Name: "MariaDB", Program: program.Server, Unprivileged: true, Clock: opts.Clock,
		Env: append([]string{"LD_LIBRARY_PATH=" + strings.Join(program.Libraries, ":"), "TZ=UTC"}, opts.Env...),
		Args: func(port, data string) []string {
			args := on(data, "--port="+port, "--bind-address="+serverprocess.Host,
				"--skip-name-resolve", "--socket="+filepath.Join(data, "s"), "--init-file="+filepath.Join(data, "start.sql"), "--max-connections=400",
				"--max-connect-errors=1000000", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--performance-schema=OFF")
			return append(args, opts.Args...)
		},
		Prepare: func(_ context.Context, _, data string, run func(string, ...string) error) error {
			if err := run("/bin/mkdir", filepath.Join(data, ".tmp")); err != nil {
				return err
			}
			if err := run("/bin/sh", append([]string{"-c", fillScript, program.Share, program.Server}, on(data)...)...); err != nil {
				return err
			}
			if err := share(data, "start.sql", strings.Join(append(usersSQL(), opts.SQL...), "\n")+"\n"); err != nil || opts.prepare == nil {
				return err
			}
			return opts.prepare(data, func(more ...string) error {
				return run(program.Server, on(data, append([]string{"--innodb-log-file-size=16M"}, more...)...)...)
			})
		},
		Ready: greets,
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// share writes a file that the user of the server may read and run.
func share(dir, name, content string) error {
	path := filepath.Join(dir, name)
	err := os.WriteFile(path, []byte(content), 0o600)
	if err == nil { // it has passwords of tests only
		err = os.Chmod(path, 0o755) //nolint:gosec // another user runs the server
	}
	return err
}

// fillScript fills a new data folder, as mariadb-install-db does. $0 is the folder of the SQL files, and the rest begins the server.
const fillScript = `{ echo "CREATE DATABASE mysql;"
echo "USE mysql;"
echo "SET @auth_root_socket = NULL;"
cat "$0/mysql_system_tables.sql" "$0/mysql_performance_tables.sql" "$0/mysql_system_tables_data.sql"
[ "$TZ" = UTC ] || cat "$0/mysql_test_data_timezone.sql"; } | "$@" --bootstrap --innodb-log-file-size=16M --innodb-buffer-pool-size=32M`

// usersSQL makes the database and its users.
func usersSQL() []string {
	var all []string
	for user, password := range map[string]string{AdminUser: AdminPassword, AppUser: AppPassword} {
		all = append(all, fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s';", user, password))
	}
	return append(all, "CREATE DATABASE IF NOT EXISTS "+Database+";", "GRANT ALL ON *.* TO '"+AdminUser+"'@'%' WITH GRANT OPTION;",
		"GRANT ALL ON "+Database+".* TO '"+AppUser+"'@'%';")
}

// reachable returns the program in a folder that the user of the server may use.
func reachable(ctx context.Context) (testservers.MariaDB, error) {
	m, err := testservers.MariaDBServer(ctx)
	if err != nil || m.Folder == "" {
		return m, err
	}
	folder, err := serverprocess.Reachable(m.Folder)
	if err != nil {
		return m, err
	}
	moved := func(path string) string { return strings.Replace(path, m.Folder, folder, 1) }
	m.Server, m.Base, m.Share, m.Galera = moved(m.Server), moved(m.Base), moved(m.Share), moved(m.Galera)
	for i, path := range m.Libraries {
		m.Libraries[i] = moved(path)
	}
	m.Folder = folder
	return m, nil
}

// greets reports whether a server greets a client, which it does first.
func greets(ctx context.Context, port string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(serverprocess.Host, port))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	greeting := make([]byte, 5)
	_, err = io.ReadFull(conn, greeting)
	const protocol = 10
	return err == nil && greeting[4] == protocol
}

var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*Server, error) { return New(ctx, dir, Options{}) })

// Shared is the server that the tests of the package share.
func Shared(tb testing.TB) *Server { tb.Helper(); serverprocess.Long(tb, reason); return shared(tb) }

// URL is the URL of the server that the tests share, with a table that only the test uses.
func URL(tb testing.TB) string {
	tb.Helper()
	serverprocess.Long(tb, reason)
	at := os.Getenv(EnvURL)
	if at == "" {
		at = shared(tb).URL()
	}
	return WithTable(at)
}

// WithTable adds a table that nobody else uses to a URL.
func WithTable(at string) string {
	return serverprocess.WithParams(at, "table=test_"+strings.ToLower(rand.Text()))
}
