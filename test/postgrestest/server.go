package postgrestest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// The superuser of every server, and the user of the databases that tests get, who has no special rights.
const (
	AdminUser     = "admin"
	AdminPassword = "postgrestest-admin-password"
	AppUser       = "app"
	AppPassword   = "postgrestest-app-password"
)

// Options of a server.
type Options struct {
	// Settings are parameters of the configuration file, such as "synchronous_commit": "off".
	Settings map[string]string
	// Clock is the server's wall clock; nil means the machine's. Its standbys have the machine's.
	Clock *serverprocess.Clock
}

// Server is a running server. Kill, Pause and Resume concern its postmaster and all of its backends.
// Its methods are safe for concurrent use.
type Server struct {
	*serverprocess.Server
	name string // as a standby
	dir  string // of standbys and poolers
	bin  string
}

// Start starts a server for this test alone and removes it at the end. It fails the test if that is not
// possible.
func Start(tb testing.TB, opts Options) *Server {
	tb.Helper()
	s, err := New(tb.Context(), tb.TempDir(), opts)
	return serverprocess.Owned(tb, s, err)
}

// New starts a server with its data under dir. The caller removes it.
func New(ctx context.Context, dir string, opts Options) (*Server, error) {
	bin, err := programs(ctx)
	if err != nil {
		return nil, err
	}
	passwords := filepath.Join(dir, "password")
	if err := os.WriteFile(passwords, []byte(AdminPassword+"\n"), 0o600); err != nil {
		return nil, err
	}
	s, err := startServer(ctx, dir, bin, opts, func(_ string, data string, run func(string, ...string) error) error {
		return run(filepath.Join(bin, "initdb"), "--pgdata", data, "--username", AdminUser, "--pwfile", passwords, "--auth", "scram-sha-256",
			"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	})
	if err != nil {
		return nil, err
	}
	if _, err := query(ctx, s.AdminURL(""), "CREATE ROLE "+AppUser+" LOGIN PASSWORD '"+AppPassword+"'"); err != nil {
		_ = s.Remove()
		return nil, err
	}
	return s, nil
}

// programs returns the folder of programs that the user of the server may run.
func programs(ctx context.Context) (string, error) {
	bin, err := testservers.PostgresBin.Path(ctx)
	if err != nil {
		return "", err
	}
	folder := testservers.PostgresFolder(bin)
	within, err := filepath.Rel(folder, bin)
	if err != nil {
		return "", err
	}
	folder, err = serverprocess.Reachable(folder)
	return filepath.Join(folder, within), err
}

// startServer starts a server whose data prepare has made.
func startServer(ctx context.Context, dir, bin string, opts Options,
	prepare func(port, data string, run func(string, ...string) error) error) (*Server, error) {
	all := map[string]string{
		"listen_addresses": serverprocess.Host, "unix_socket_directories": "", "max_connections": "300", "shared_buffers": "32MB",
		"max_wal_size": "256MB", "wal_receiver_status_interval": "1s", "log_min_messages": "warning",
	}
	maps.Copy(all, opts.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	s, err := serverprocess.StartOne(ctx, dir, serverprocess.Config{
		Name: "PostgreSQL", Program: filepath.Join(bin, "postgres"), Unprivileged: true,
		Env: []string{"PGPASSWORD=" + AdminPassword, "LC_ALL=C"}, Clock: opts.Clock,
		Args: func(port, data string) []string {
			return append([]string{"-D", data, "-p", port}, args...)
		},
		Prepare: func(_ context.Context, port, data string, run func(string, ...string) error) error {
			return prepare(port, data, run)
		},
		Ready: Ready(bin),
	})
	if err != nil {
		return nil, err
	}
	return &Server{Server: s, dir: dir, bin: bin}, nil
}

// Ready asks a server with the program pg_isready of a folder whether it is ready.
func Ready(bin string) func(ctx context.Context, port string) bool {
	return func(ctx context.Context, port string) bool {
		return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", serverprocess.Host, "-p", port).Run() == nil
	}
}

// AdminURL is the URL of a database for the superuser; "" is the database of the superuser.
func (s *Server) AdminURL(database string) string {
	if database == "" {
		database = "postgres"
	}
	return Address(s.Addr(), AdminUser, AdminPassword, database)
}

// Database creates a database, and returns its URL for a user who owns it and has no special rights.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	created, err := createDatabase(tb.Context(), s.AdminURL(""), AppUser)
	if err != nil {
		tb.Fatal(err)
	}
	u, err := url.Parse(created)
	if err != nil {
		tb.Fatal(err)
	}
	u.User = url.UserPassword(AppUser, AppPassword)
	return u.String()
}

// At is the URL of the same database, for the same user, on this server: of a standby, or through a pooler.
func (s *Server) At(tb testing.TB, raw string) string { tb.Helper(); return At(tb, raw, s.Addr()) }

// At is the URL of the same database, for the same user, at another address.
func At(tb testing.TB, raw, addr string) string {
	tb.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		tb.Fatal("this is no URL of a database")
	}
	u.Host = addr
	return u.String()
}

// Set changes a setting of the running server and has it read its configuration again.
func (s *Server) Set(tb testing.TB, name, value string) {
	tb.Helper()
	SQL(tb, s.AdminURL(""), fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value), "SELECT pg_reload_conf()")
}

// Standby starts a standby of this server. With sync, commits wait for it from now on.
func (s *Server) Standby(tb testing.TB, sync bool) *Server {
	tb.Helper()
	ctx := tb.Context()
	dir := tb.TempDir()
	name := "standby" + filepath.Base(dir) + filepath.Base(filepath.Dir(dir))
	host, port := hostPort(s.Addr())
	settings := map[string]string{"synchronous_standby_names": "", "hot_standby_feedback": "on"}
	standby, err := startServer(ctx, dir, s.bin, Options{Settings: settings},
		func(_, data string, run func(string, ...string) error) error {
			return run(filepath.Join(s.bin, "pg_basebackup"), "--pgdata", data, "--write-recovery-conf", "--wal-method", "stream",
				"--checkpoint", "fast", "--no-sync", "--dbname",
				fmt.Sprintf("host=%s port=%s user=%s application_name=%s", host, port, AdminUser, name))
		})
	serverprocess.Owned(tb, standby, err)
	standby.name = name
	want := "async"
	if sync {
		want = "sync"
		s.Set(tb, "synchronous_standby_names", `FIRST 1 ("`+name+`")`)
	}
	state := "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming' AND application_name = '" + name + "'"
	WaitFor(tb, "the standby streams", func() bool { return SQL(tb, s.AdminURL(""), state) == want })
	return standby
}

// Promote makes a standby a primary. It returns when the standby takes writes.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	if got := SQL(tb, s.AdminURL(""), "SELECT pg_promote(true, 60)"); got != "t" {
		tb.Fatalf("the standby was not promoted: %s", got)
	}
}

// PauseReplay has a standby receive what the primary writes, and not show it; a promotion shows it. ResumeReplay ends that.
func (s *Server) PauseReplay(tb testing.TB) {
	tb.Helper()
	SQL(tb, s.AdminURL(""), "SELECT pg_wal_replay_pause()")
	WaitFor(tb, "the standby pauses", func() bool { return SQL(tb, s.AdminURL(""), "SELECT pg_get_wal_replay_pause_state()") == "paused" })
}

// ResumeReplay ends a PauseReplay.
func (s *Server) ResumeReplay(tb testing.TB) {
	tb.Helper()
	SQL(tb, s.AdminURL(""), "SELECT pg_wal_replay_resume()")
}

// WaitFor waits until a condition holds, and fails the test if that takes too long.
func WaitFor(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(sqlTimeout); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("this did not happen within %v: %s", sqlTimeout, what)
		}
	}
}
