// Package redistest gives tests a real Redis or Valkey: it fetches or finds the program, starts the servers that a test needs on
// loopback, and removes them at the end. So "go test" needs no preparation on a new machine.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// All tests of the package share the server of [URL], which starts when a test first needs it; the keys of each test have a prefix of
// their own. Tests that stop or pause servers, or change their settings, start their own with [Start].
package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURL names the variable that makes the tests use a server that is running already. Its user may do everything.
const EnvURL = testservers.EnvRedisURL

// Password is that of the default user of every server.
const Password = "redistest-password"

// Main runs the tests, stops the shared server, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

// Server is a running server. Its methods are safe for concurrent use.
type Server struct{ *serverprocess.Server }

// URL is that of the server for the default user, without parameters.
func (s *Server) URL() string { return At(s.Addr()) }

// At is the URL of a server of this package, or of a proxy before one, at an address.
func At(addr string) string { return "redis://:" + Password + "@" + addr }

// Start starts a server for this test alone, with arguments such as "--appendonly", "yes". It removes the server at the end.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := New(tb.Context(), tb.TempDir(), args...)
	return serverprocess.Owned(tb, s, err)
}

// StartReplica starts a replica of a server for this test alone.
func StartReplica(tb testing.TB, of *Server, args ...string) *Server {
	tb.Helper()
	host, port, _ := strings.Cut(of.Addr(), ":")
	return Start(tb, append([]string{"--replicaof", host + " " + port, "--masterauth", Password}, args...)...)
}

// StartSentinel starts a Sentinel with a configuration file, for this test alone.
func StartSentinel(tb testing.TB, config string) *Server {
	tb.Helper()
	return Start(tb, config, "--sentinel")
}

// New starts a server with its data under dir. The caller removes it. Arguments may begin with the path of a configuration file.
func New(ctx context.Context, dir string, args ...string) (*Server, error) {
	program, err := testservers.Redis.Path(ctx)
	if err != nil {
		return nil, err
	}
	s, err := serverprocess.StartOne(ctx, dir, serverprocess.Config{
		Name: "Redis", Program: program,
		Args: func(port, data string) []string {
			all := []string{"--port", port, "--bind", serverprocess.Host, "--dir", data, "--requirepass", Password}
			if slices.Contains(args, "--sentinel") {
				return append(slices.Clone(args), all...)
			}
			return append(append(all, "--save", "", "--repl-diskless-sync-delay", "0"), args...)
		},
		Ready: func(ctx context.Context, port string) bool { // it may still load its data
			answer, err := Ask(ctx, net.JoinHostPort(serverprocess.Host, port), "PING")
			return err == nil && answer == "+PONG"
		},
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Ask sends a command to a server, as the default user, and returns its answer, if that is a text, or else the first line of it.
func Ask(ctx context.Context, addr, command string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(askTimeout))
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\n%s\r\n", Password, command); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "+OK\r\n" {
		return "", fmt.Errorf("login: %s, %w", strings.TrimSpace(line), err)
	}
	line, err := r.ReadString('\n')
	line = strings.TrimSpace(line)
	if size, is := strings.CutPrefix(line, "$"); is && err == nil && size != "-1" {
		n, err := strconv.Atoi(size)
		text := make([]byte, max(0, n))
		if err == nil {
			_, err = io.ReadFull(r, text)
		}
		return string(text), err
	}
	return line, err
}

const askTimeout = 30 * time.Second

var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*Server, error) { return New(ctx, dir) })

// Shared is the server that the tests of the package share.
func Shared(tb testing.TB) *Server { tb.Helper(); return shared(tb) }

// URL is the URL of the server that the tests share, with a prefix of keys that only the test uses.
func URL(tb testing.TB) string {
	tb.Helper()
	at := os.Getenv(EnvURL)
	if at == "" {
		at = shared(tb).URL()
	}
	return serverprocess.WithParams(at, "prefix=test-"+strings.ToLower(rand.Text())+":")
}
