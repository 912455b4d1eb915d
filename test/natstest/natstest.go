// Package natstest gives tests a real nats-server: it starts the servers that a test needs on loopback, and removes them at the end.
// tools/nats.sh builds the program. Without it the tests are skipped.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { natstest.Main(m) }
package natstest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// EnvProgram is the variable with the program.
const EnvProgram = "HOLDFAST_TEST_NATS_SERVER"

// EnvURL names the variable with the URL of a server that is running already, without a bucket. Its user may make buckets.
const EnvURL = "HOLDFAST_TEST_NATS_URL"

// Admin may do everything, with the password.
const (
	Admin    = "admin"
	Password = "natstest-password"
)

// Main runs the tests, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	*serverprocess.Server
	mu   sync.Mutex
	more string // lines of its configuration
	file string // its configuration
}

// URL is that of the server for the user Admin, without a bucket.
func (s *Server) URL() string { return At(s.Addr()) }

// At is the URL of a server of this package, or of a proxy before one, at an address.
func At(addr string) string { return "nats://" + Admin + ":" + Password + "@" + addr }

// Available reports whether [URL] has a server.
func Available() bool { return os.Getenv(EnvURL) != "" || os.Getenv(EnvProgram) != "" }

// URL is the URL of a bucket that only the test uses.
func URL(tb testing.TB) string {
	tb.Helper()
	at := os.Getenv(EnvURL)
	if at == "" {
		at = Start(tb).URL()
	}
	return driverutil.Below(at, "test-"+strings.ToLower(rand.Text()))
}

// URLOf is that of several servers.
func URLOf(servers ...*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return At(strings.Join(all, ","))
}

// Users is a line for [Server.Crash] and [Start]: the user Admin, and others as the configuration has them.
func Users(others ...string) string {
	all := append([]string{fmt.Sprintf("{user: %s, password: %q}", Admin, Password)}, others...)
	return "authorization { users: [" + strings.Join(all, ", ") + "] }"
}

// Start starts a server with JetStream for this test alone, with lines of configuration beside those for the address and the data. Without
// any it has the user Admin alone.
func Start(tb testing.TB, lines ...string) *Server {
	tb.Helper()
	if len(lines) == 0 {
		lines = []string{Users(), "jetstream {}"}
	}
	s := &Server{more: strings.Join(lines, "\n")}
	return start(tb, []*Server{s}, []serverprocess.Config{s.config(program(tb))})[0]
}

// StartCluster starts servers that form a cluster with JetStream, for this test alone.
func StartCluster(tb testing.TB, n int) []*Server {
	tb.Helper()
	path, routes, addresses := program(tb), []string{}, []string{}
	for range n {
		addresses = append(addresses, serverprocess.ReserveAddress(tb))
		routes = append(routes, "nats://"+addresses[len(addresses)-1])
	}
	all, configs := make([]*Server, n), make([]serverprocess.Config, n)
	for i := range all {
		all[i] = &Server{more: fmt.Sprintf("%s\njetstream {}\nserver_name: n%d\ncluster { name: c, listen: %q, routes: [%s] }", Users(), i,
			addresses[i], strings.Join(routes, ", "))}
		configs[i] = all[i].config(path)
	}
	return start(tb, all, configs)
}

func start(tb testing.TB, all []*Server, configs []serverprocess.Config) []*Server {
	tb.Helper()
	started, err := serverprocess.Start(tb.Context(), tb.TempDir(), configs...)
	if err != nil {
		tb.Fatal(err)
	}
	for i, s := range started {
		all[i].Server = s
		serverprocess.Owned(tb, s, nil)
	}
	return all
}

func program(tb testing.TB) string {
	tb.Helper()
	return serverprocess.Given(tb, EnvProgram, "tools/nats.sh builds a real server")
}

func (s *Server) config(program string) serverprocess.Config {
	return serverprocess.Config{
		Name: "nats-server", Program: program,
		Args: func(port, data string) []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.file = filepath.Join(data, "nats.conf")
			if err := os.WriteFile(s.file, []byte(s.more), 0o600); err != nil {
				panic(err) // the folder is that of the test
			}
			return []string{"--config", s.file, "--addr", serverprocess.Host, "--port", port, "--store_dir", filepath.Join(data, "jetstream")}
		},
	}
}

// Crash kills the server, and returns when it has started again, with other lines of configuration, if there are any.
func (s *Server) Crash(ctx context.Context, lines ...string) error {
	if len(lines) > 0 {
		s.mu.Lock()
		s.more = strings.Join(lines, "\n")
		s.mu.Unlock()
	}
	return s.Server.Crash(ctx)
}

// Reload has the server take other lines of configuration while it runs, soon.
func (s *Server) Reload(lines ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = strings.Join(lines, "\n")
	process, err := os.FindProcess(s.PID())
	if err == nil {
		err = os.WriteFile(s.file, []byte(s.more), 0o600)
	}
	if err == nil {
		err = process.Signal(syscall.SIGHUP)
	}
	return err
}
