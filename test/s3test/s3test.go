// Package s3test is an object store in the test's process that speaks S3's protocol, as far as locks need it: conditional writes are
// exact, the times are by the server's clock, and a bucket has versions and lifecycle rules to be read. Package awstest has the rest.
package s3test

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/awstest"
)

// EnvURL is the variable with the URL of a bucket to test against, such as s3://BUCKET?endpoint=http://127.0.0.1:9000. Each test then
// has a prefix of its own. The credentials are those of the environment.
const EnvURL = "HOLDFAST_TEST_S3_URL"

// What exists, and what is accepted.
const (
	Bucket       = "locks"
	Region       = awstest.Region
	KeyID        = awstest.KeyID
	Secret       = awstest.Secret
	SessionToken = awstest.SessionToken
)

// Request is one that came.
type Request = awstest.Request

// Fault is what becomes of a request. The messages of errors follow from their codes.
type Fault = awstest.Fault

// Server is an object store with one bucket.
type Server struct {
	*awstest.Server
	stamps  func() time.Time
	writes  int
	objects map[string]object
	configs map[string]string // the answers to questions about the bucket, such as "versioning"
}

type object struct {
	body    []byte
	etag    string
	written time.Time
}

// Start starts a server, which the test stops at its end. Its clock is that of the machine.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{objects: map[string]object{}, configs: map[string]string{}}
	s.Server = awstest.Start(tb, awstest.Service{
		Name: "s3", Read: s.read,
		Fail:        func(w http.ResponseWriter, status int, code, _ string) { fail(w, status, code) },
		WrongKey:    awstest.Error{Status: http.StatusForbidden, Code: "InvalidAccessKeyId"},
		WrongRegion: awstest.Error{Status: http.StatusBadRequest, Code: "AuthorizationHeaderMalformed"},
		WrongBody:   awstest.Error{Status: http.StatusBadRequest, Code: "XAmzContentSHA256Mismatch"},
		Denied:      awstest.Error{Status: http.StatusForbidden, Code: "AccessDenied"},
	})
	return s
}

// URL starts a server, unless [EnvURL] has the URL of one, and returns the URL of a part of it that only the test uses. The first call
// sets the credentials in the environment of the process.
func URL(tb testing.TB) string {
	tb.Helper()
	return awstest.URL(tb, EnvURL, func() string { return Start(tb).URL() })
}

// URL is one for the driver. Its credentials are [KeyID] and [Secret].
func (s *Server) URL() string {
	return "s3://" + Bucket + "?region=" + Region + "&endpoint=" + s.Endpoint()
}

// SetStamps sets the clock of Last-Modified alone.
func (s *Server) SetStamps(now func() time.Time) { s.Locked(func() { s.stamps = now }) }

// SetConfig sets the answer to a question about the bucket, such as "versioning".
func (s *Server) SetConfig(question, answer string) {
	s.Locked(func() { s.configs[question] = answer })
}

// Object returns the body of an object, or nil.
func (s *Server) Object(key string) (body []byte) {
	s.Locked(func() { body = s.objects[key].body })
	return body
}

// SetObject writes an object, or with nil deletes it, as a person may.
func (s *Server) SetObject(key string, body []byte) {
	s.Locked(func() {
		if delete(s.objects, key); body != nil {
			s.put(key, body)
		}
	})
}

// Keys lists the keys of the objects.
func (s *Server) Keys() (keys []string) {
	s.Locked(func() { keys = slices.Sorted(maps.Keys(s.objects)) })
	return keys
}

// read is [awstest.Service].Read.
func (s *Server) read(r *http.Request, body []byte) awstest.Call {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if host, _, _ := strings.Cut(r.Host, "."); host == Bucket { // the bucket is in the host's name
		bucket, key = host, strings.TrimPrefix(r.URL.Path, "/")
	}
	req := Request{Action: action(r, key), Key: key}
	if key == "" {
		req.Key = r.URL.Query().Get("prefix")
	}
	return awstest.Call{
		Request: req,
		About:   func(key string) bool { return req.Action == "ListBucket" && strings.HasPrefix(key, req.Key) },
		Do: func(w http.ResponseWriter) {
			w.Header().Set("Server", "AmazonS3")
			if bucket != Bucket {
				fail(w, http.StatusNotFound, "NoSuchBucket")
				return
			}
			s.answer(w, r, req, body)
		},
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
	stamps := s.Now
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
