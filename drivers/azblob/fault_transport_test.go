package azblob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// The driver's requests, by the names that the fault transport gives them.
const (
	reqAcquire   = "acquire lease"
	reqRenew     = "renew lease"
	reqRelease   = "release lease"
	reqBreak     = "break lease"
	reqRead      = "read properties"
	reqMetadata  = "write metadata"
	reqUpload    = "upload"
	reqDownload  = "download"
	reqContainer = "create container"
	reqList      = "list"
)

func requestName(r *http.Request) string {
	comp, action := r.URL.Query().Get("comp"), ""
	for key, values := range r.Header { // the SDK writes keys in lower case
		if strings.EqualFold(key, "x-ms-lease-action") {
			action = values[0]
		}
	}
	switch {
	case comp == "lease":
		return action + " lease"
	case comp == "metadata":
		return reqMetadata
	case comp == "list":
		return reqList
	case r.URL.Query().Get("restype") == "container":
		return reqContainer
	case r.Method == http.MethodHead:
		return reqRead
	case r.Method == http.MethodGet:
		return reqDownload
	case r.Method == http.MethodPut:
		return reqUpload
	default:
		return r.Method + " " + r.URL.Path
	}
}

// fault handles a request instead of the connection.
type fault func(base http.RoundTripper, r *http.Request) (*http.Response, error)

// faultTransport records requests and injects faults.
type faultTransport struct {
	base http.RoundTripper

	mu        sync.Mutex
	seen      []string
	total     int
	faultAt   int                // the number of the request that meets faultOnce, from 1
	faultOnce fault              // nil for no fault
	metOnce   string             // the request that met faultOnce
	faults    map[string][]fault // by request, the next one first
	always    map[string]fault
}

func newFaultTransport() *faultTransport {
	return &faultTransport{faults: map[string][]fault{}, always: map[string]fault{}}
}

// wrap is an argument of azuritetest's Client.
func (w *faultTransport) wrap(base http.RoundTripper) http.RoundTripper {
	w.base = base
	return w
}

func (w *faultTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	name := requestName(r)
	w.mu.Lock()
	w.seen = append(w.seen, name)
	w.total++
	f := w.always[name]
	if w.total == w.faultAt {
		f, w.metOnce = w.faultOnce, name
	}
	if queue := w.faults[name]; len(queue) > 0 {
		f, w.faults[name] = queue[0], queue[1:]
	}
	w.mu.Unlock()
	if f != nil {
		return f(w.base, r)
	}
	return w.base.RoundTrip(r)
}

// next adds faults for the next requests of a name, one each; nil is no fault.
func (w *faultTransport) next(name string, faults ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[name] = append(w.faults[name], faults...)
}

// all sets the fault of every request of a name; nil removes it.
func (w *faultTransport) all(name string, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.always[name] = f
}

// met returns the request that met faultOnce.
func (w *faultTransport) met() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.metOnce
}

// take returns the requests since the last call.
func (w *faultTransport) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *faultTransport) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(w.seen), func(s string) bool { return s != name }))
}

var errBroken = errors.New("connection reset by the test")

// lost drops the request.
func lost(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	discard(r)
	return nil, errBroken
}

// unanswered delivers the request and drops the answer.
func unanswered(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	if err := deliver(base, r); err != nil {
		return nil, err
	}
	return nil, errBroken
}

// hang drops the request and never answers.
func hang(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	discard(r)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// hangAfter delivers the request and never answers.
func hangAfter(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	if err := deliver(base, r); err != nil {
		return nil, err
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// respond drops the request and answers with an error.
func respond(status int, code string, header ...string) fault {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		discard(r)
		return errorResponse(r, status, code, header...), nil
	}
}

// respondAfter delivers the request and answers with an error.
func respondAfter(status int, code string, header ...string) fault {
	return func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		if err := deliver(base, r); err != nil {
			return nil, err
		}
		return errorResponse(r, status, code, header...), nil
	}
}

// rewrite replaces a text in the service's answer.
func rewrite(from, to string) fault {
	return func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(resp.Body)
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		resp.Header.Del("Content-Length")
		return resp, err
	}
}

// errorResponse looks like Azure's, which quotes the request if a signature does not match.
func errorResponse(r *http.Request, status int, code string, header ...string) *http.Response {
	var sent bytes.Buffer
	_ = r.Header.Write(&sent) // a buffer accepts everything
	text := fmt.Sprintf("<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>The string to sign was: %s %s %s</Message></Error>", code,
		r.Method, r.URL, sent.String())
	h := http.Header{"X-Ms-Error-Code": {code}, "Content-Type": {"application/xml"}, "X-Ms-Request-Id": {"the-request-id"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r}
}

// delayedRequest drops the request and keeps a copy, which send delivers.
type delayedRequest struct {
	base http.RoundTripper
	r    *http.Request
}

func (l *delayedRequest) fault(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	body := discard(r)
	l.base, l.r = base, r.Clone(contextWithoutEnd)
	l.r.Body = io.NopCloser(bytes.NewReader(body))
	return nil, errBroken
}

func (l *delayedRequest) send() (status int, code string, err error) {
	resp, err := l.base.RoundTrip(l.r)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("x-ms-error-code"), errors.Join(err, resp.Body.Close())
}

func deliver(base http.RoundTripper, r *http.Request) error {
	resp, err := base.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func discard(r *http.Request) (body []byte) {
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	return body
}
