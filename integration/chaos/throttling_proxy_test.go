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

// throttlingProxy is a proxy for a blob service. On demand it refuses requests like an overloaded
// service.
type throttlingProxy struct {
	addr    string // host:port
	path    string // the path of the account
	refusal atomic.Pointer[refusal]
}

// refusal is the answer to a share of all requests.
type refusal struct {
	status int
	code   string
	share  float64
}

// newThrottlingProxy starts a proxy to an endpoint. It ends with the test.
func newThrottlingProxy(t *testing.T, endpoint string) *throttlingProxy {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p := &throttlingProxy{path: to.Path}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		// If the service is down, the proxy does not answer in its place.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := p.refusal.Load(); no != nil && rand.Float64() < no.share {
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
	p.addr = server.Listener.Addr().String()
	return p
}

func (p *throttlingProxy) refuse(r *refusal) { p.refusal.Store(r) }
