//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// gate stands before a blob service and refuses requests, if it is told to, as a
// service does that has too many.
type gate struct {
	addr    string // host:port
	path    string // of the account
	refusal atomic.Pointer[refusal]
}

// refusal of a share of all requests.
type refusal struct {
	status int
	code   string
	share  float64
}

// newGate opens a gate before an endpoint, for the test.
func newGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	g := &gate{path: to.Path}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		// A service that is not there does not answer for itself.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := g.refusal.Load(); no != nil && rand.Float64() < no.share {
			w.Header().Set("X-Ms-Error-Code", no.code)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(no.status)
			fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>later</Message></Error>`, no.code)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	g.addr = server.Listener.Addr().String()
	return g
}

func (g *gate) refuse(r *refusal) { g.refusal.Store(r) }
