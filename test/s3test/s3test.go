// Package s3test is an object store in the test's process that speaks S3's protocol, as far as locks need it: conditional writes are
// exact, the times are by the server's clock, and a bucket has versions and lifecycle rules to be read. Rights can be taken away, and
// requests can be refused, held up, or done without an answer. It compares the hash of the body, the key and the region of a signature,
// and not the signature itself.
package s3test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
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

// EnvURL is the variable with the URL of a bucket to test against, such as s3://BUCKET?endpoint=http://127.0.0.1:9000. Each test then
// has a prefix of its own. The credentials are those of the environment.
const EnvURL = "HOLDFAST_TEST_S3_URL"

// What exists, and what is accepted.
const (
	Bucket       = "locks"
	Region       = "eu-test-1"
	KeyID        = "AKIAKEYOFTHETEST"
	Secret       = "secret-access-key-of-the-test"
	SessionToken = "session-token-of-the-test"
)

// Server is an object store with one bucket.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	now     func() time.Time
	stamps  func() time.Time
	writes  int
	objects map[string]object
	configs map[string]string // the answers to questions about the bucket, such as "versioning"
	denied  map[string]bool   // actions
	stalled map[string]chan struct{}
	fault   func(Request) Fault
	counts  map[string]int
}

type object struct {
	body    []byte
	etag    string
	written time.Time
}

// Request is one that came: an action of S3, such as PutObject, and the key of an object, or the prefix of a list.
type Request struct{ Action, Key string }

// Fault is what becomes of a request. The zero Fault answers it.
type Fault struct {
	// Status, if not 0, is answered with the code and the header, and nothing is done.
	Status int
	Code   string
	Header http.Header
	// Unanswered: it is done, and the connection is closed instead of an answer.
	Unanswered bool
	// Twice: it is done twice, and the second answer is sent.
	Twice bool
}

// Start starts a server, which the test stops at its end. Its clock is that of the machine.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{now: time.Now, objects: map[string]object{}, configs: map[string]string{}, denied: map[string]bool{},
		stalled: map[string]chan struct{}{}, counts: map[string]int{}}
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
	return "s3://" + Bucket + "?region=" + Region + "&endpoint=" + s.http.URL
}

// Endpoint is the server's address.
func (s *Server) Endpoint() string { return s.http.URL }

// Addr is the server's address, as host:port.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// SetClock sets the clock of the answers, and SetStamps that of Last-Modified, if it is another one.
func (s *Server) SetClock(now func() time.Time) { s.locked(func() { s.now = now }) }

// SetStamps sets the clock of Last-Modified alone.
func (s *Server) SetStamps(now func() time.Time) { s.locked(func() { s.stamps = now }) }

// SetFaults sets what becomes of requests; nil answers them.
func (s *Server) SetFaults(fault func(Request) Fault) { s.locked(func() { s.fault = fault }) }

// SetConfig sets the answer to a question about the bucket, such as "versioning".
func (s *Server) SetConfig(question, answer string) {
	s.locked(func() { s.configs[question] = answer })
}

// Deny refuses an action, such as PutObject, or with "*" all of them, until allow is called.
func (s *Server) Deny(action string) (allow func()) {
	s.locked(func() { s.denied[action] = true })
	return func() { s.locked(func() { delete(s.denied, action) }) }
}

// Stall holds up the requests about a key, or a list that has it, until resume is called.
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

// Object returns the body of an object, or nil.
func (s *Server) Object(key string) (body []byte) {
	s.locked(func() { body = s.objects[key].body })
	return body
}

// SetObject writes an object, or with nil deletes it, as a person may.
func (s *Server) SetObject(key string, body []byte) {
	s.locked(func() {
		if delete(s.objects, key); body != nil {
			s.put(key, body)
		}
	})
}

// Keys lists the keys of the objects.
func (s *Server) Keys() (keys []string) {
	s.locked(func() { keys = slices.Sorted(maps.Keys(s.objects)) })
	return keys
}

// Requests counts the requests for an action.
func (s *Server) Requests(action string) (n int) {
	s.locked(func() { n = s.counts[action] })
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
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if host, _, _ := strings.Cut(r.Host, "."); host == Bucket { // the bucket is in the host's name
		bucket, key = host, strings.TrimPrefix(r.URL.Path, "/")
	}
	req := Request{Action: action(r, key), Key: key}
	if key == "" {
		req.Key = r.URL.Query().Get("prefix")
	}
	s.mu.Lock()
	s.counts[req.Action]++
	fault, now := Fault{}, s.now()
	if s.fault != nil {
		fault = s.fault(req)
	}
	var wait chan struct{}
	for stalled, c := range s.stalled {
		if stalled == req.Key || req.Action == "ListBucket" && strings.HasPrefix(stalled, req.Key) {
			wait = c
		}
	}
	denied := s.denied[req.Action] || s.denied["*"]
	s.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	sum := sha256.Sum256(body)
	sign := r.Header.Get("Authorization")
	switch {
	case fault.Status != 0:
		maps.Copy(w.Header(), fault.Header)
		fail(w, fault.Status, fault.Code)
	case !strings.Contains(sign, "Credential="+KeyID+"/"):
		fail(w, http.StatusForbidden, "InvalidAccessKeyId")
	case !strings.Contains(sign, "/"+Region+"/s3/aws4_request"):
		fail(w, http.StatusBadRequest, "AuthorizationHeaderMalformed")
	case r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		fail(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
	case bucket != Bucket:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case denied:
		fail(w, http.StatusForbidden, "AccessDenied")
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if fault.Twice {
			s.answer(httptest.NewRecorder(), r, req, body)
		}
		if fault.Unanswered {
			s.answer(httptest.NewRecorder(), r, req, body)
			panic(http.ErrAbortHandler)
		}
		s.answer(w, r, req, body)
	}
}

// action is that of S3's rights.
func action(r *http.Request, key string) string {
	query := r.URL.Query()
	switch {
	case key != "":
		return map[string]string{http.MethodGet: "GetObject", http.MethodPut: "PutObject", http.MethodDelete: "DeleteObject"}[r.Method]
	case query.Has("list-type"):
		return "ListBucket"
	case query.Has("versioning"):
		return "GetBucketVersioning"
	case query.Has("lifecycle"):
		return "GetLifecycleConfiguration"
	}
	return "GetBucketObjectLockConfiguration"
}

// fail answers with what stores say. They repeat parts of the credential.
func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	message := "message about " + code
	if code != "AccessDenied" && status != http.StatusNotFound {
		message += " of " + KeyID + " with " + Secret
	}
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message><Region>%s</Region><AWSAccessKeyId>%s</AWSAccessKeyId></Error>",
		code, message, Region, KeyID)
}

// answer does what a request asks for.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request, body []byte) {
	o, exists := s.objects[req.Key]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch req.Action {
	case "GetObject":
		if !exists {
			fail(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("Last-Modified", o.written.UTC().Format(http.TimeFormat))
		_, _ = w.Write(o.body)
	case "PutObject":
		switch {
		case match != "" && !exists:
			fail(w, http.StatusNotFound, "NoSuchKey")
		case match != "" && match != o.etag, none == "*" && exists:
			fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			w.Header().Set("ETag", s.put(req.Key, body))
		}
	case "DeleteObject":
		delete(s.objects, req.Key)
		w.WriteHeader(http.StatusNoContent)
	case "ListBucket":
		s.list(w, r)
	default:
		for question, answer := range s.configs {
			if r.URL.Query().Has(question) && answer != "" {
				_, _ = io.WriteString(w, answer)
				return
			}
		}
		switch req.Action {
		case "GetBucketVersioning":
			_, _ = io.WriteString(w, "<VersioningConfiguration/>")
		case "GetLifecycleConfiguration":
			fail(w, http.StatusNotFound, "NoSuchLifecycleConfiguration")
		default:
			fail(w, http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
		}
	}
}

// put writes an object and returns its ETag, which is no hash, as with SSE-KMS.
func (s *Server) put(key string, body []byte) string {
	stamps := s.now
	if s.stamps != nil {
		stamps = s.stamps
	}
	s.writes++
	o := object{body, fmt.Sprintf("%q", fmt.Sprintf("e%d", s.writes)), stamps()}
	s.objects[key] = o
	return o.etag
}

// list answers with a page of keys.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	type content struct{ Key string }
	result := struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		Contents              []content
		NextContinuationToken string `xml:",omitempty"`
		IsTruncated           bool
	}{}
	most, err := strconv.Atoi(query.Get("max-keys"))
	if err != nil {
		most = 1000
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, found := strings.CutPrefix(key, query.Get("prefix"))
		switch {
		case !found || strings.Contains(rest, "/") && query.Get("delimiter") == "/" || key <= query.Get("continuation-token"):
		case len(result.Contents) == most:
			result.IsTruncated = true
			result.NextContinuationToken = result.Contents[most-1].Key
		default:
			result.Contents = append(result.Contents, content{key})
		}
	}
	_ = xml.NewEncoder(w).Encode(result)
}
