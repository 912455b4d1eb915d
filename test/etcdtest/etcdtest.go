// Package etcdtest gives tests a real etcd: it fetches or finds the program, starts the members that a test needs on loopback, and
// removes them at the end. So "go test" needs no preparation on a new machine. Short runs leave these tests out.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { etcdtest.Main(m) }
//
// All tests of the package share the cluster of [URL], which has one member and starts when a test first needs it; the keys of each test
// have a prefix of their own. Tests that stop or pause members, or change their settings, start their own with [Start] or [StartCluster].
package etcdtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURL names the variable that makes the tests use a cluster that is running already.
const EnvURL = testservers.EnvEtcdURL

// reason says why short runs leave out what needs a server.
const reason = "starts etcd"

// Main runs the tests, stops the shared cluster, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

// Server is a member of a cluster. Its methods are safe for concurrent use.
type Server struct {
	*serverprocess.Server
	data   string
	scheme string       // http or https
	client *http.Client // that of the tests
}

// URL is that of the member, without a prefix.
func (s *Server) URL() string { return "etcd://" + s.Addr() }

// URLOf is that of several members.
func URLOf(servers ...*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return "etcd://" + strings.Join(all, ",")
}

// Start starts a cluster of one member for this test alone, with arguments such as "--auth-token-ttl=2". It removes it at the end.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	serverprocess.Long(tb, reason)
	s, err := New(tb.Context(), tb.TempDir(), args...)
	return serverprocess.Owned(tb, s, err)
}

// StartTLS is Start for a member with TLS. certFile and keyFile are those with which the tests ask it.
func StartTLS(tb testing.TB, certFile, keyFile string, args ...string) *Server {
	tb.Helper()
	serverprocess.Long(tb, reason)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{scheme: "https", client: &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}}}} //nolint:gosec // the test has started it
	return serverprocess.Owned(tb, s, s.start(tb.Context(), tb.TempDir(), args...))
}

// StartCluster starts a cluster of so many members for this test alone, and returns when it has a leader.
func StartCluster(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	serverprocess.Long(tb, reason)
	program, err := testservers.Etcd.Path(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	peers, names := make([]string, n), make([]string, n)
	for i := range peers {
		peers[i] = "http://" + serverprocess.ReserveAddress(tb)
		names[i] = fmt.Sprintf("m%d=%s", i, peers[i])
	}
	all, configs := make([]*Server, n), make([]serverprocess.Config, n)
	for i := range all {
		all[i] = plain()
		configs[i] = config(program, all[i], peers[i], append([]string{fmt.Sprintf("--name=m%d", i), "--initial-cluster=" +
			strings.Join(names, ",")}, args...)...)
	}
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

// New starts a cluster of one member with its data under dir. The caller removes it.
func New(ctx context.Context, dir string, args ...string) (*Server, error) {
	s := plain()
	if err := s.start(ctx, dir, args...); err != nil {
		return nil, err
	}
	return s, nil
}

// plain is a member without TLS that has not been started.
func plain() *Server { return &Server{scheme: "http", client: client} }

// start starts a member that has no others.
func (s *Server) start(ctx context.Context, dir string, args ...string) error {
	program, err := testservers.Etcd.Path(ctx)
	if err != nil {
		return err
	}
	const nobody = "http://127.0.0.1:1"
	s.Server, err = serverprocess.StartOne(ctx, dir, config(program, s, nobody, append([]string{"--listen-peer-urls=http://127.0.0.1:0",
		"--initial-cluster=default=" + nobody}, args...)...))
	return err
}

// config is that of a member. Later arguments replace earlier ones.
func config(program string, s *Server, peer string, args ...string) serverprocess.Config {
	return serverprocess.Config{
		Name: "etcd", Program: program,
		Args: func(port, data string) []string {
			s.data = data
			at := s.scheme + "://" + serverprocess.Host + ":" + port
			return append([]string{"--data-dir=" + filepath.Join(data, "etcd"), "--listen-client-urls=" + at, "--advertise-client-urls=" + at,
				"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--log-level=error"}, args...)
		},
		Ready: func(ctx context.Context, port string) bool {
			health, err := s.send(ctx, http.MethodGet, "", s.scheme+"://"+serverprocess.Host+":"+port+"/health", nil)
			return err == nil && bytes.Contains(health, []byte(`"true"`))
		},
	}
}

const askTimeout = 30 * time.Second

// client keeps no connections: tests look for goroutines that are left over.
var client = &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true}}

// Ask makes a request to the gateway of a member, such as /v3/kv/range, with a body of fields. The answer is JSON.
func (s *Server) Ask(ctx context.Context, token, path string, fields map[string]any) ([]byte, error) {
	if fields == nil {
		fields = map[string]any{} // since 3.6 members refuse null
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return s.send(ctx, http.MethodPost, token, s.scheme+"://"+s.Addr()+path, body)
}

func (s *Server) send(ctx context.Context, method, token, url string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", r.URL.Path, resp.Status, answer)
	}
	return answer, err
}

// RootPassword is that of the user root after [Server.EnableLogin].
const RootPassword = "etcdtest-root-password"

// EnableLogin makes users with their passwords, who may read and write the keys with a prefix, and enables authentication.
func (s *Server) EnableLogin(ctx context.Context, prefix string, users map[string]string) error {
	steps := []struct {
		path   string
		fields map[string]any
	}{
		{"user/add", map[string]any{"name": "root", "password": RootPassword}},
		{"user/grant", map[string]any{"user": "root", "role": "root"}},
		{"role/add", map[string]any{"name": "locks"}},
		{"role/grant", permission(prefix, "READWRITE")},
		{"role/add", map[string]any{"name": "readers"}},
		{"role/grant", map[string]any{"name": "readers", "perm": permission(prefix, "READ")["perm"]}},
	}
	for name, password := range users {
		role := "locks"
		if name == Reader {
			role = "readers"
		}
		steps = append(steps, struct {
			path   string
			fields map[string]any
		}{"user/add", map[string]any{"name": name, "password": password}}, struct {
			path   string
			fields map[string]any
		}{"user/grant", map[string]any{"user": name, "role": role}})
	}
	for _, step := range steps {
		if _, err := s.Ask(ctx, "", "/v3/auth/"+step.path, step.fields); err != nil {
			return err
		}
	}
	_, err := s.Ask(ctx, "", "/v3/auth/enable", nil)
	return err
}

// Reader is the name of a user who may only read.
const Reader = "reader"

func permission(prefix, kind string) map[string]any {
	return map[string]any{"name": "locks", "perm": map[string]any{"permType": kind, "key": []byte(prefix), "range_end": endOf(prefix)}}
}

// endOf is the end of the keys with a prefix.
func endOf(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

// AskAsRoot is Ask with the login of root.
func (s *Server) AskAsRoot(ctx context.Context, path string, fields map[string]any) ([]byte, error) {
	answer, err := s.Ask(ctx, "", "/v3/auth/authenticate", map[string]any{"name": "root", "password": RootPassword})
	if err != nil {
		return nil, err
	}
	var login struct{ Token string }
	if err := json.Unmarshal(answer, &login); err != nil {
		return nil, err
	}
	return s.Ask(ctx, login.Token, path, fields)
}

// SetRight gives the role of the users their right to a prefix, or takes it away.
func (s *Server) SetRight(ctx context.Context, prefix string, right bool) error {
	if right {
		_, err := s.AskAsRoot(ctx, "/v3/auth/role/grant", permission(prefix, "READWRITE"))
		return err
	}
	_, err := s.AskAsRoot(ctx, "/v3/auth/role/revoke", map[string]any{"role": "locks", "key": []byte(prefix), "range_end": endOf(prefix)})
	return err
}

// Backup stops the member, and returns what does so again and puts the data of now into their place. Both start it again.
func (s *Server) Backup(ctx context.Context, dir string) (restore func() error, err error) {
	ctx = context.WithoutCancel(ctx)
	if err := errors.Join(s.Stop(), os.CopyFS(dir, os.DirFS(s.data)), s.Restart(ctx)); err != nil {
		return nil, err
	}
	return func() error {
		return errors.Join(s.Kill(), os.RemoveAll(filepath.Join(s.data, "etcd")), os.CopyFS(s.data, os.DirFS(dir)), s.Restart(ctx))
	}, nil
}

var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*Server, error) { return New(ctx, dir) })

// Shared is the cluster that the tests of the package share.
func Shared(tb testing.TB) *Server { tb.Helper(); serverprocess.Long(tb, reason); return shared(tb) }

// URL is the URL of the cluster that the tests share, with a prefix of keys that only the test uses.
func URL(tb testing.TB) string {
	tb.Helper()
	serverprocess.Long(tb, reason)
	at := os.Getenv(EnvURL)
	if at == "" {
		at = shared(tb).URL()
	}
	return driverutil.Below(at, "test-"+strings.ToLower(rand.Text()))
}
