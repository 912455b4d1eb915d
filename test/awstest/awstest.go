// Package awstest is what servers in a test's process that speak a protocol of AWS share: the signature, rights that can be taken away,
// requests that are counted, refused, held up, or done without an answer. It compares the hash of the body, the key and the region of a
// signature, and not the signature itself.
package awstest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What is accepted.
const (
	Region       = "eu-test-1"
	KeyID        = "AKIAKEYOFTHETEST"
	Secret       = "secret-access-key-of-the-test"
	SessionToken = "session-token-of-the-test"
)

// Service is what a server has of its own. Its functions are called with the lock of [Server.Locked].
type Service struct {
	Name        string // in signatures
	ContentType string // of the answers, if not empty
	// Read says what a request asks for.
	Read func(r *http.Request, body []byte) Call
	// Fail answers with an error. Not every protocol has messages of its own.
	Fail func(w http.ResponseWriter, status int, code, message string)
	// What answers a request with another key, region or body than its signature has. The signature follows the message.
	WrongKey, WrongRegion, WrongBody Error
	// Denied answers a request for an action that is denied. The action follows the message.
	Denied Error
}

// Error is an answer.
type Error struct {
	Status        int
	Code, Message string
}

// Call is what a request asks for.
type Call struct {
	Request
	// About reports whether the request is about a key besides its own. It may be nil.
	About func(key string) bool
	// Do answers the request.
	Do func(w http.ResponseWriter)
}

// Request is one that came: an action, such as PutObject, and the key of what it is about, or the prefix of what it lists.
type Request struct{ Action, Key string }

// Fault is what becomes of a request. The zero Fault answers it.
type Fault struct {
	// Status, if not 0, is answered with the code, the message and the header, and nothing is done. Without a code the message is the
	// whole body.
	Status        int
	Code, Message string
	Header        http.Header
	// Unanswered: it is done, and the connection is closed instead of an answer.
	Unanswered bool
	// Twice: it is done twice, and the second answer is sent.
	Twice bool
}

// Server is a server.
type Server struct {
	http    *httptest.Server
	service Service

	mu      sync.Mutex
	now     func() time.Time
	denied  map[string]bool // actions
	stalled map[string]chan struct{}
	fault   func(Request) Fault
	counts  map[string]int
}

// Start starts a server, which the test stops at its end. Its clock is that of the machine.
func Start(tb testing.TB, service Service) *Server {
	tb.Helper()
	s := &Server{service: service, now: time.Now, denied: map[string]bool{}, stalled: map[string]chan struct{}{}, counts: map[string]int{}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(func() {
		s.Locked(func() {
			for _, c := range s.stalled {
				close(c)
			}
			clear(s.stalled)
		})
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

var once sync.Once

// URL returns the URL of a part of a server that only the test uses: of the one whose URL a variable has, or else of one that start
// starts. The first call that starts one sets the credentials in the environment of the process.
func URL(tb testing.TB, variable string, start func() string) string {
	tb.Helper()
	if at := os.Getenv(variable); at != "" {
		return driverutil.Below(at, "t"+strconv.FormatInt(time.Now().UnixNano(), 36))
	}
	once.Do(func() {
		for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": KeyID, "AWS_SECRET_ACCESS_KEY": Secret,
			"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
			_ = os.Setenv(name, value) //nolint:usetesting // for parallel tests and their children
		}
	})
	return start()
}

// Endpoint is the server's address.
func (s *Server) Endpoint() string { return s.http.URL }

// Addr is the server's address, as host:port.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// SetClock sets the clock of the answers.
func (s *Server) SetClock(now func() time.Time) { s.Locked(func() { s.now = now }) }

// Now is the time of the answers. It is for functions that [Server.Locked] calls.
func (s *Server) Now() time.Time { return s.now() }

// SetFaults sets what becomes of requests; nil answers them.
func (s *Server) SetFaults(fault func(Request) Fault) { s.Locked(func() { s.fault = fault }) }

// Deny refuses an action, such as PutObject, or with "*" all of them, until allow is called.
func (s *Server) Deny(action string) (allow func()) {
	s.Locked(func() { s.denied[action] = true })
	return func() { s.Locked(func() { delete(s.denied, action) }) }
}

// Stall holds up the requests about a key, or a list that has it, until resume is called.
func (s *Server) Stall(key string) (resume func()) {
	c := make(chan struct{})
	s.Locked(func() { s.stalled[key] = c })
	return func() {
		s.Locked(func() {
			if s.stalled[key] == c {
				delete(s.stalled, key)
				close(c)
			}
		})
	}
}

// Requests counts the requests for an action.
func (s *Server) Requests(action string) (n int) {
	s.Locked(func() { n = s.counts[action] })
	return n
}

// Locked calls a function while no request is answered.
func (s *Server) Locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var c Call
	var fault Fault
	var now time.Time
	var wait chan struct{}
	var denied bool
	s.Locked(func() {
		c, now = s.service.Read(r, body), s.now()
		s.counts[c.Action]++
		if s.fault != nil {
			fault = s.fault(c.Request)
		}
		for key, stalled := range s.stalled {
			if key == c.Key || c.About != nil && c.About(key) {
				wait = stalled
			}
		}
		denied = s.denied[c.Action] || s.denied["*"]
	})
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	if s.service.ContentType != "" {
		w.Header().Set("Content-Type", s.service.ContentType)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256(body)
	signature := r.Header.Get("Authorization")
	fail := func(e Error, more string) { s.service.Fail(w, e.Status, e.Code, e.Message+more) }
	switch {
	case fault.Status != 0:
		maps.Copy(w.Header(), fault.Header)
		if fault.Code != "" {
			fail(Error{fault.Status, fault.Code, fault.Message}, "")
			return
		}
		w.WriteHeader(fault.Status)
		_, _ = io.WriteString(w, fault.Message)
	case !strings.Contains(signature, "Credential="+KeyID+"/"):
		fail(s.service.WrongKey, signature)
	case !strings.Contains(signature, "/"+Region+"/"+s.service.Name+"/aws4_request"):
		fail(s.service.WrongRegion, signature)
	case r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		fail(s.service.WrongBody, signature)
	case denied:
		fail(s.service.Denied, c.Action)
	default:
		if fault.Twice || fault.Unanswered {
			c.Do(httptest.NewRecorder())
		}
		if fault.Unanswered {
			panic(http.ErrAbortHandler)
		}
		c.Do(w)
	}
}
