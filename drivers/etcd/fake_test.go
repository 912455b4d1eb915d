package etcd

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// fake is a member of which a test says what it answers. It has no keys.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	paths   []string
	answers map[string]reply // by path; an empty one is that of a member without keys
}

type reply struct {
	status int
	body   string
	do     func() // before the answer
}

const fakeHeader = `"header": {"cluster_id": "7", "member_id": "8", "revision": "9", "raft_term": "2"}`

// startFake starts one in the cluster 7.
func startFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{answers: map[string]reply{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		f.mu.Lock()
		f.paths = append(f.paths, r.URL.Path)
		answer := f.answers[r.URL.Path]
		f.mu.Unlock()
		if answer.do != nil {
			answer.do()
		}
		if answer.body == "" {
			answer.body = "{" + fakeHeader + "}"
		}
		w.WriteHeader(max(answer.status, http.StatusOK))
		_, _ = io.WriteString(w, answer.body)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) addr() string { return strings.TrimPrefix(f.URL, "http://") }

// set sets the answer of a path.
func (f *fake) set(path string, answer reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[path] = answer
}

// refuse sets an answer of the gateway with a message.
func (f *fake) refuse(path string, status int, message string) {
	f.set(path, reply{status: status, body: fmt.Sprintf(`{"error": %[1]q, "code": 2, "message": %[1]q}`, message)})
}

// requests returns how many requests for a path have come.
func (f *fake) requests(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.paths {
		if p == path {
			n++
		}
	}
	return n
}

// urlOf is the URL of members at addresses.
func urlOf(addresses ...string) string { return "etcd://" + strings.Join(addresses, ",") }
