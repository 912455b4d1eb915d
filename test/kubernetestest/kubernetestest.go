// Package kubernetestest is an API server of Kubernetes in the test's process, as far as Leases need one: resource versions are
// exact, a write has a stamp in managedFields by the server's clock, and a watch reports each write once and in order. Rights can be
// taken away, and requests can be refused, held up, or done without an answer.
package kubernetestest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// EnvURL is the variable with the URL of an API server to test against, such as kubernetes://NAMESPACE?kubeconfig=FILE. Each test
// then has a prefix of its own.
const EnvURL = "HOLDFAST_TEST_KUBERNETES_URL"

// Namespace is the one that exists, and Token the one credential that is accepted until SetToken.
const (
	Namespace = "locks"
	Token     = "secret-bearer-of-the-test"
)

// path is that of the Leases of all namespaces.
const path = "/apis/coordination.k8s.io/v1/namespaces/"

// Server is an API server.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	now     func() time.Time
	version uint64                       // the resource version of the latest write
	leases  map[string]map[string]object // by namespace and name
	watches map[*watch]struct{}
	denied  map[string]bool          // verbs
	stalled map[string]chan struct{} // names
	fault   func(Request) Fault
	counts  map[string]int
	used    map[string]string // the protocol of a verb's latest request
	noTimes bool
	stamps  func() time.Time
	token   string
	starts  bool
}

// object is a Lease as JSON has it.
type object = map[string]any

// Request is one that came.
type Request struct{ Verb, Name string }

// Fault is what becomes of a request. The zero Fault answers it.
type Fault struct {
	// Status, if not 0, is answered, and nothing is done. RetryAfter, if not 0, is a header of that answer, in seconds.
	Status, RetryAfter int
	// Unanswered: it is done, and the connection is closed instead of an answer.
	Unanswered bool
	// Expired: a list that goes on is told that its token has expired, and gets another one.
	Expired bool
	// Twice: it is done twice, and the second answer is sent.
	Twice bool
}

// Start starts a server with TLS and HTTP/2, which the test stops at its end. Its clock is that of the machine.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := newServer()
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not know its certificate
	s.http.StartTLS()
	tb.Cleanup(s.close)
	return s
}

// StartPlain is Start for a server without TLS, to which client-go sends no credential of a kubeconfig.
func StartPlain(tb testing.TB) *Server {
	tb.Helper()
	s := newServer()
	s.http = httptest.NewServer(s)
	tb.Cleanup(s.close)
	return s
}

func newServer() *Server {
	return &Server{now: time.Now, version: 1000, leases: map[string]map[string]object{Namespace: {}}, watches: map[*watch]struct{}{},
		denied: map[string]bool{}, stalled: map[string]chan struct{}{}, counts: map[string]int{},
		used: map[string]string{}, token: Token}
}

func (s *Server) close() {
	s.mu.Lock()
	for _, c := range s.stalled {
		close(c)
	}
	clear(s.stalled)
	s.mu.Unlock()
	s.Cut()
	s.http.Close()
}

// URL starts a server, unless [EnvURL] has that of one, and returns the URL of a part of it that only the test uses.
func URL(tb testing.TB) string {
	tb.Helper()
	if at := os.Getenv(EnvURL); at != "" {
		return serverprocess.WithParams(at, "prefix=t"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-")
	}
	return Start(tb).URL(tb)
}

// URL is one for the driver, with a kubeconfig.
func (s *Server) URL(tb testing.TB) string {
	tb.Helper()
	return "kubernetes://" + Namespace + "?kubeconfig=" + filepath.ToSlash(s.Kubeconfig(tb, s.Host()))
}

// Host is the server's address, with its scheme.
func (s *Server) Host() string { return s.http.URL }

// Addr is the server's address, as host:port.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// Certificate is that of a server with TLS, as PEM.
func (s *Server) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}

// Kubeconfig writes a kubeconfig for a server at a URL, with the credential of the test.
func (s *Server) Kubeconfig(tb testing.TB, at string) string {
	tb.Helper()
	return kubeconfig(tb, at, Token)
}

func kubeconfig(tb testing.TB, at, token string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
"clusters": [{"name": "test", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
"users": [{"name": "test", "user": {"token": %q}}],
"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": %q}}]}
`, at, token, Namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// SetClock sets the server's clock.
func (s *Server) SetClock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// SetStamps sets the clock of the server that writes, which stamps managedFields, to another one than that of the header Date. With
// nil there are no stamps.
func (s *Server) SetStamps(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noTimes, s.stamps = now == nil, now
}

// Deny takes rights away: verbs, or all of them with "*". It returns what gives them back.
func (s *Server) Deny(verbs ...string) (allow func()) {
	set := func(denied bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range verbs {
			s.denied[v] = denied
		}
	}
	set(true)
	return func() { set(false) }
}

// Stall holds up the requests about a Lease until resume is called, and all lists.
func (s *Server) Stall(name string) (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	for _, n := range []string{name, ""} {
		s.stalled[n] = c
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stalled[name] == c {
			close(c)
			delete(s.stalled, name)
			delete(s.stalled, "")
		}
	})
}

// SetToken replaces the credential that is accepted.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// SetStarting makes the server one that has just started, and refuses everything, or one that is ready.
func (s *Server) SetStarting(starts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = starts
}

// SetFaults sets what becomes of requests.
func (s *Server) SetFaults(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests returns how many requests of a verb have come.
func (s *Server) Requests(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[verb]
}

// Protocols returns the protocol of each verb's latest request.
func (s *Server) Protocols() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.used)
}

// Cut closes all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	for w := range s.watches {
		w.end()
	}
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// Lease returns a Lease as JSON, or nil.
func (s *Server) Lease(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.leases[Namespace][name]
	if o == nil {
		return nil
	}
	return encode(o)
}

// Names returns those of all Leases.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.leases[Namespace]))
}

// Delete deletes a Lease, as kubectl does. It reports whether there was one.
func (s *Server) Delete(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[Namespace][name] == nil {
		return false
	}
	s.remove(Namespace, name)
	return true
}

// Edit changes a Lease by a merge patch, as kubectl does.
func (s *Server) Edit(name, patch string) error { return s.EditAs("kubectl-edit", name, patch) }

// EditAs is Edit by another manager of fields.
func (s *Server) EditAs(manager, name, patch string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.patch(Namespace, name, manager, decode([]byte(patch)))
	if a.status != http.StatusOK {
		return fmt.Errorf("%d %s", a.status, encode(a.body))
	}
	return nil
}

func encode(o any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return text
}

func decode(text []byte) object {
	var o object
	if json.Unmarshal(text, &o) != nil {
		return nil
	}
	return o
}

// part returns an object within one, which it makes if there is none.
func part(o object, name string) object {
	p, is := o[name].(object)
	if !is {
		p = object{}
		o[name] = p
	}
	return p
}

func meta(o object) object { return part(o, "metadata") }

// Create makes a Lease, as kubectl does.
func (s *Server) Create(name, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[Namespace][name] != nil || !isSubdomain(name) {
		return fmt.Errorf("the Lease %s cannot be made", name)
	}
	if a := s.store(Namespace, name, "kubectl-create", nil, decode([]byte(text)), http.StatusCreated); a.status != http.StatusCreated {
		return fmt.Errorf("%d %s", a.status, encode(a.body))
	}
	return nil
}
