package etcd

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake is a member of which a test says what it answers. It has no keys.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	methods []string
	answers map[string]reply // by method; an empty one is that of a member without keys
}

type reply struct {
	message []byte
	status  int // of gRPC
	text    string
	do      func()                      // before the answer
	raw     func(w http.ResponseWriter) // instead of it
}

// startFake starts one in the cluster 7.
func startFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{answers: map[string]reply{}}
	f.Server = httptest.NewUnstartedServer(f.handler(t))
	f.Config.Protocols = &http.Protocols{}
	f.Config.Protocols.SetUnencryptedHTTP2(true)
	f.Start()
	t.Cleanup(f.Close)
	return f
}

func (f *fake) handler(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) < frameHeader || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-frameHeader {
			t.Errorf("%s: the body is no frame: %q, %v", r.URL.Path, body, err)
		}
		for name, want := range map[string]string{"Te": "trailers", "Content-Type": "application/grpc", "Hasleader": "true"} {
			if got := r.Header.Get(name); got != want || r.Method != http.MethodPost {
				t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL.Path, name, got, want)
			}
		}
		f.mu.Lock()
		f.methods = append(f.methods, r.URL.Path)
		answer := f.answers[r.URL.Path]
		f.mu.Unlock()
		if answer.do != nil {
			answer.do()
		}
		if answer.raw != nil {
			answer.raw(w)
			return
		}
		w.Header().Set("Content-Type", contentType)
		prefix := ""
		if answer.status == statusOK {
			if answer.message == nil {
				answer.message = from(7)
			}
			_, _ = w.Write(frameOf(answer.message))
			prefix = http.TrailerPrefix
		}
		w.Header().Set(prefix+"Grpc-Status", strconv.Itoa(answer.status))
		w.Header().Set(prefix+"Grpc-Message", strings.NewReplacer("%", "%25", "\n", "%0A").Replace(answer.text))
	}
}

func frameOf(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// from is an answer of a cluster, at revision 9.
func from(cluster int64) []byte {
	return appendBytes(nil, 1, appendNumber(appendNumber(appendNumber(nil, 1, cluster), 2, 8), 3, 9))
}

// keyOf is a key in an answer.
func keyOf(value string, revision int64) []byte {
	return appendBytes(appendNumber(appendBytes(nil, 1, []byte("k")), 3, revision), 5, []byte(value))
}

// done is the answer to a transaction that has written.
func done(cluster int64) []byte {
	return appendSetBytes(appendFlag(from(cluster), 2, true), 3, appendSetBytes(nil, 2, nil))
}

// html is what another server answers.
func html(status int, contentType, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func (f *fake) addr() string { return strings.TrimPrefix(f.URL, "http://") }

// set sets the answer of a method.
func (f *fake) set(method string, answer reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[method] = answer
}

// refuse sets an answer without a message.
func (f *fake) refuse(method string, status int, text string) {
	f.set(method, reply{status: status, text: text})
}

// requests returns how many requests for a method have come.
func (f *fake) requests(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.methods {
		if m == method {
			n++
		}
	}
	return n
}

// urlOf is the URL of members at addresses.
func urlOf(addresses ...string) string { return "etcd://" + strings.Join(addresses, ",") }
