// Package dynamodbtest is a server in the test's process that speaks DynamoDB's protocol, as far as locks need it: items with one key,
// exact conditions, transactions, scans and batches in parts, and tables that can be made. Rights can be taken away, and requests can be
// refused, held up, or done without an answer. It compares the hash of the body, the key and the region of a signature, and not the
// signature itself.
package dynamodbtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// EnvURL is the variable with the URL of a table to test against, such as dynamodb://TABLE?endpoint=http://127.0.0.1:8000. Each test
// then has a prefix of its own. The credentials are those of the environment.
const EnvURL = "HOLDFAST_TEST_DYNAMODB_URL"

// What exists, and what is accepted.
const (
	Table        = "locks"
	Region       = "eu-test-1"
	KeyID        = "AKIAKEYOFTHETEST"
	Secret       = "secret-access-key-of-the-test"
	SessionToken = "session-token-of-the-test"
)

// Attribute is a value of an item.
type Attribute struct {
	S    *string `json:"S,omitempty"`
	N    *string `json:"N,omitempty"`
	BOOL *bool   `json:"BOOL,omitempty"`
}

// Item is an item. Its key is the attribute "name".
type Item map[string]Attribute

func (i Item) key() string {
	if i["name"].S == nil {
		return ""
	}
	return *i["name"].S
}

// Text is the attribute of a text.
func Text(s string) Attribute { return Attribute{S: &s} }

// Server is a server with one table at first.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	now     func() time.Time
	tables  map[string]map[string]any // what DescribeTable answers
	items   map[string]Item           // of all tables, by table and key
	ttl     map[string]any
	denied  map[string]bool // actions
	stalled map[string]chan struct{}
	fault   func(Request) Fault
	counts  map[string]int
	weak    int // reads that were not strongly consistent
}

// Request is one that came: an action such as PutItem, and the key of its item, or the prefix of a scan.
type Request struct{ Action, Key string }

// Fault is what becomes of a request. The zero Fault answers it.
type Fault struct {
	// Status, if not 0, is answered with the code and the message, and nothing is done. Without a code the message is the whole body.
	Status        int
	Code, Message string
	// Unanswered: it is done, and the connection is closed instead of an answer.
	Unanswered bool
	// Twice: it is done twice, and the second answer is sent.
	Twice bool
}

// Start starts a server, which the test stops at its end.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{now: time.Now, tables: map[string]map[string]any{}, items: map[string]Item{},
		ttl: map[string]any{"TimeToLiveStatus": "DISABLED"}, denied: map[string]bool{},
		stalled: map[string]chan struct{}{}, counts: map[string]int{}}
	s.SetTable(Table, Description())
	s.http = httptest.NewServer(s)
	tb.Cleanup(func() {
		s.mu.Lock()
		for _, c := range s.stalled {
			close(c)
		}
		clear(s.stalled)
		s.mu.Unlock()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Description is what DescribeTable answers for a table of locks.
func Description() map[string]any {
	return map[string]any{"TableStatus": "ACTIVE", "BillingModeSummary": map[string]any{"BillingMode": "PAY_PER_REQUEST"},
		"KeySchema":             []any{map[string]any{"AttributeName": "name", "KeyType": "HASH"}},
		"AttributeDefinitions":  []any{map[string]any{"AttributeName": "name", "AttributeType": "S"}},
		"ProvisionedThroughput": map[string]any{"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}}
}

var once sync.Once

// URL starts a server, unless [EnvURL] has the URL of one, and returns the URL of a part of it that only the test uses. The first call
// sets the credentials in the environment of the process.
func URL(tb testing.TB) string {
	tb.Helper()
	if at := os.Getenv(EnvURL); at != "" {
		base, query, _ := strings.Cut(at, "?")
		return strings.TrimRight(base, "/") + "/t" + strconv.FormatInt(time.Now().UnixNano(), 36) + "?" + query
	}
	once.Do(func() {
		for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": KeyID, "AWS_SECRET_ACCESS_KEY": Secret,
			"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
			_ = os.Setenv(name, value) //nolint:usetesting // for parallel tests and their children
		}
	})
	return Start(tb).URL()
}

// URL is one for the driver. Its credentials are [KeyID] and [Secret].
func (s *Server) URL() string {
	return "dynamodb://" + Table + "?region=" + Region + "&endpoint=" + s.http.URL
}

// Endpoint is the server's address.
func (s *Server) Endpoint() string { return s.http.URL }

// Addr is the server's address, as host:port.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// SetClock sets the clock of the answers.
func (s *Server) SetClock(now func() time.Time) { s.locked(func() { s.now = now }) }

// SetFaults sets what becomes of requests; nil answers them.
func (s *Server) SetFaults(fault func(Request) Fault) { s.locked(func() { s.fault = fault }) }

// SetTable sets what DescribeTable answers for a table, or with nil removes it.
func (s *Server) SetTable(name string, description map[string]any) {
	s.locked(func() {
		if delete(s.tables, name); description != nil {
			s.tables[name] = description
		}
	})
}

// TableNamed returns what DescribeTable answers for a table, or nil.
func (s *Server) TableNamed(name string) (t map[string]any) {
	s.locked(func() { t = s.tables[name] })
	return t
}

// SetTTL makes DynamoDB delete items by an attribute.
func (s *Server) SetTTL(attribute string) {
	s.locked(func() { s.ttl = map[string]any{"TimeToLiveStatus": "ENABLED", "AttributeName": attribute} })
}

// Deny refuses an action, such as PutItem, or with "*" all of them, until allow is called.
func (s *Server) Deny(action string) (allow func()) {
	s.locked(func() { s.denied[action] = true })
	return func() { s.locked(func() { delete(s.denied, action) }) }
}

// Stall holds up the requests about a key, or a scan that has it, until resume is called.
func (s *Server) Stall(key string) (resume func()) {
	c := make(chan struct{})
	s.locked(func() { s.stalled[key] = c })
	return func() {
		s.locked(func() {
			if s.stalled[key] == c {
				delete(s.stalled, key)
				close(c)
			}
		})
	}
}

// Item returns an item of [Table], or nil.
func (s *Server) Item(key string) (i Item) {
	s.locked(func() { i = maps.Clone(s.items[Table+" "+key]) })
	return i
}

// SetItem writes an item of [Table], or with nil deletes it, as a person may.
func (s *Server) SetItem(key string, i Item) {
	s.locked(func() {
		if delete(s.items, Table+" "+key); i != nil {
			s.items[Table+" "+key] = i
		}
	})
}

// Keys lists the keys of [Table].
func (s *Server) Keys() (keys []string) {
	s.locked(func() {
		for _, key := range slices.Sorted(maps.Keys(s.items)) {
			if key, ours := strings.CutPrefix(key, Table+" "); ours {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// Requests counts the requests for an action.
func (s *Server) Requests(action string) (n int) {
	s.locked(func() { n = s.counts[action] })
	return n
}

// WeakReads counts the reads of items that were not strongly consistent.
func (s *Server) WeakReads() (n int) {
	s.locked(func() { n = s.weak })
	return n
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	target, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in input
	malformed := json.Unmarshal(body, &in) != nil
	s.mu.Lock()
	req := Request{Action: action, Key: in.about()}
	s.counts[action]++
	if in.isWeak(action) {
		s.weak++
	}
	fault, now := Fault{}, s.now()
	if s.fault != nil {
		fault = s.fault(req)
	}
	var wait chan struct{}
	for stalled, c := range s.stalled {
		if stalled == req.Key || action == "Scan" && strings.HasPrefix(stalled, req.Key) || in.asksFor(stalled) {
			wait = c
		}
	}
	denied := s.denied[action] || s.denied["*"]
	s.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	sum := sha256.Sum256(body)
	sign := r.Header.Get("Authorization")
	switch {
	case fault.Status != 0 && fault.Code == "":
		w.WriteHeader(fault.Status)
		_, _ = io.WriteString(w, fault.Message)
	case fault.Status != 0:
		fail(w, fault.Status, fault.Code, fault.Message)
	case !strings.Contains(sign, "Credential="+KeyID+"/"):
		fail(w, http.StatusBadRequest, "UnrecognizedClientException", "The security token is invalid: "+sign)
	case !strings.Contains(sign, "/"+Region+"/dynamodb/aws4_request"), !strings.Contains(sign, "x-amz-target"),
		r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		fail(w, http.StatusBadRequest, "InvalidSignatureException", "Credential should be scoped to a valid region: "+sign)
	case malformed || target != "DynamoDB_20120810" || r.Header.Get("Content-Type") != "application/x-amz-json-1.0":
		fail(w, http.StatusBadRequest, "SerializationException", "")
	case denied:
		fail(w, http.StatusBadRequest, "AccessDeniedException", "User: arn:aws:iam::1:user/app is not authorized to perform: dynamodb:"+action)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if fault.Twice {
			s.answer(httptest.NewRecorder(), action, in)
		}
		if fault.Unanswered {
			s.answer(httptest.NewRecorder(), action, in)
			panic(http.ErrAbortHandler)
		}
		s.answer(w, action, in)
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	answer(w, map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message})
}

func answer(w io.Writer, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(w, "%s", text)
}
