package httpstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

const (
	limit  = 100
	secret = "hidden-word"
)

// serve starts a server and returns a Client for it, its URL, which has a secret, and the number of requests that came.
func serve(t *testing.T, handler http.HandlerFunc) (c *httpstore.Client, at string, came *atomic.Int32) {
	t.Helper()
	came = &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return httpstore.New(&http.Client{Transport: transport, Timeout: time.Nanosecond}, limit), s.URL + "/?signature=" + secret, came
}

func put(at string) httpstore.Request {
	return httpstore.Request{Method: http.MethodPut, URL: at, Header: http.Header{"If-Match": {"1"}}, Body: []byte("body")}
}

// An answer is classified by its status alone, and each request is made once, also those that are redirected or refused.
func TestStatus(t *testing.T) {
	type classes struct{ done, missing, refused, lasting bool }
	for status, want := range map[int]classes{
		200: {done: true}, 201: {done: true}, 204: {done: true}, 404: {missing: true, refused: true}, 409: {refused: true},
		412: {refused: true}, 400: {lasting: true}, 401: {lasting: true}, 403: {lasting: true}, 405: {lasting: true},
		413: {lasting: true}, 415: {lasting: true}, 422: {lasting: true}, 301: {}, 307: {}, 308: {}, 408: {}, 429: {}, 500: {}, 502: {},
		503: {}, 504: {},
	} {
		c, at, came := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "0")
			w.Header().Set("Date", "Sat, 28 Nov 2026 19:10:58 GMT")
			w.WriteHeader(status)
		})
		a, err := c.Send(t.Context(), put(at))
		if err != nil || came.Load() != 1 {
			t.Errorf("%d: %v after %d requests", status, err, came.Load())
			continue
		}
		if got := (classes{a.Done(), a.Missing(), a.Refused(), a.Lasting()}); got != want || a.Status != status {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
		if now := a.Now(); !now.Equal(time.Date(2026, 11, 28, 19, 10, 58, 0, time.UTC)) {
			t.Errorf("%d: the time is %v", status, now)
		}
		failed := a.Failed("why not")
		if errors.Is(failed, driver.ErrDenied) != want.lasting || !strings.Contains(failed.Error(), "why not") {
			t.Errorf("%d: %v", status, failed)
		}
	}
}

// A message of any length becomes one line of a log.
func TestMessage(t *testing.T) {
	a := httpstore.Answer{Status: 500}
	for message, want := range map[string]string{
		"":                         "the store answered 500 Internal Server Error",
		" two\n\tlines\xff":        "the store answered 500 Internal Server Error: two lines",
		strings.Repeat("é", 1<<20): "the store answered 500 Internal Server Error: " + strings.Repeat("é", 150) + "…",
	} {
		if got := a.Failed(message).Error(); got != want {
			t.Errorf("%.20q: %.400q, want %q", message, got, want)
		}
	}
}

// A header is sent as it is, with the body.
func TestRequest(t *testing.T) {
	c, at, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		_, _ = io.WriteString(w, r.Method+r.Header.Get("If-Match")+r.Header.Get("Content-Length"))
	})
	a, err := c.Send(t.Context(), put(at))
	if err != nil || string(a.Body) != "PUT14" || !a.Now().IsZero() {
		t.Errorf("%q, %v, %v", a.Body, a.Now(), err)
	}
}

// What comes after the body of an answer is a part of it.
func TestTrailer(t *testing.T) {
	c, at, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Status")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Status", "7")
	})
	a, err := c.Send(t.Context(), put(at))
	if err != nil || string(a.Body) != "body" || a.Trailer.Get("Status") != "7" || a.Header.Get("Status") != "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// An answer that is too long is an error, and so is one that ends too early.
func TestLength(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", limit):   "",
		strings.Repeat("x", limit+1): "longer than 100 bytes",
		"short":                      "EOF",
	} {
		c, at, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if text == "short" {
				w.Header().Set("Content-Length", "50")
			}
			_, _ = io.WriteString(w, text)
		})
		if _, err := c.Send(t.Context(), put(at)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", len(text), err, want)
		}
	}
}

// A request ends with its context, with the context's error, before the answer and within its body.
func TestContext(t *testing.T) {
	for what, begin := range map[string]bool{"before the header": false, "within the body": true} {
		ended := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		c, at, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if begin {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
			cancel()
			<-ended
		})
		_, err := c.Send(ctx, put(at))
		close(ended)
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// silent is a transport that waits, and says for what.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, errors.New("the proxy is silent")
}

// The error of a request whose context has ended says what the transport says of it.
func TestWhoIsSilent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := httpstore.New(&http.Client{Transport: silent{}}, limit).Send(ctx, put("http://127.0.0.1:1/?k="+secret))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the proxy is silent") || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

// No error shows what is in the URL.
func TestNoSecrets(t *testing.T) {
	c, at, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, url := range []string{at, "http://127.0.0.1:1/?k=" + secret, "http://[" + secret, ":" + secret, "nonsense://h/" + secret} {
		if _, err := c.Send(t.Context(), put(url)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
