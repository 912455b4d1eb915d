package integration

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The blob service refuses two of five requests, with 503 "ServerBusy" or with 429, while clients
// increment a counter under a lock and another client holds a second lock — no hold is lost, no
// increment is lost, and increments continue.
func TestThrottling(t *testing.T) {
	t.Parallel()
	a := env.SharedAzurite(t)
	var refused atomic.Int64
	u := throttled(t, a.FreshURL(t), &refused)
	// Two of five requests are refused, so a lease with time for few requests only would be lost now and then.
	h, err := open(t, u, holdfast.WithTTL(time.Minute), holdfast.WithRenewEvery(3*time.Second)).Lock(testContext(t), "kept")
	env.Check(t, err)
	c := &counter{t: t}
	stop := c.contend(u, 4, holdfast.WithTTL(15*time.Second), holdfast.WithPollInterval(500*time.Millisecond))
	defer stop()
	for end := time.Now().Add(35 * time.Second); time.Now().Before(end); {
		c.awaitIncrements(1)
		if err := h.Err(); err != nil {
			t.Fatalf("lost: %v", err)
		}
	}
	stop()
	c.check()
	if n := refused.Load(); n < 20 {
		t.Errorf("only %d requests were refused", n)
	}
}

// throttled returns the URL of a proxy that refuses many of the requests to a blob service.
func throttled(t *testing.T, rawURL string, refused *atomic.Int64) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	env.Check(t, err)
	query := u.Query()
	target, err := url.Parse(query.Get("endpoint"))
	env.Check(t, err)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rand.IntN(5) {
		case 0:
			refused.Add(1)
			w.Header().Set("x-ms-error-code", "ServerBusy")
			http.Error(w, "the server is busy", http.StatusServiceUnavailable)
		case 1:
			refused.Add(1)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	query.Set("endpoint", strings.Replace(target.String(), target.Host, proxy.Listener.Addr().String(), 1))
	u.RawQuery = query.Encode()
	return u.String()
}

// Azurite is stopped and started again, with its state on disk, while a lock is held — the holder
// keeps the lock by its next renewal, and the next token is higher.
//
// An acquire by another client before that renewal is not tested: a restarted Azurite treats
// every lease as expired. Azure does not restart.
func TestAzuriteRestartedWithItsState(t *testing.T) {
	t.Parallel()
	a := env.StartAzurite(t, true)
	u := a.FreshURL(t)
	const ttl = 60 * time.Second
	holder, waiter := open(t, u, holdfast.WithTTL(ttl)), open(t, u, holdfast.WithTTL(ttl))
	h, err := holder.Lock(testContext(t), "kept")
	env.Check(t, err)
	env.Check(t, a.Stop(testContext(t)))
	if _, err := waiter.TryLock(testContext(t), "another"); err == nil || errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("while the service is down: %v, want an error other than ErrHeld", err)
	}
	env.Check(t, a.Restart(testContext(t)))
	left := h.LostIn()
	eventually(t, "a renewal", func() bool { return h.Err() != nil || h.LostIn() > left })
	if err := h.Err(); err != nil {
		t.Fatalf("the holder had %v left after the restart and lost its lock: %v", left, err)
	}
	if _, err := waiter.TryLock(testContext(t), "kept"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("after the renewal: %v, want held", err)
	}
	env.Check(t, h.Release(testContext(t)))
	next, err := waiter.Lock(testContext(t), "kept")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d was granted after token %d", next.Token(), h.Token())
	}
}

// Azurite is killed while a lock is held, and its state is lost — the loss is detected by the
// next renewal, at the latest at the local deadline, and the next token is higher although no
// record of the last one is left; no lock service can promise exclusion in this case.
func TestAzuriteStateLost(t *testing.T) {
	t.Parallel()
	a := env.StartAzurite(t, false)
	u := a.FreshURL(t)
	const ttl = 15 * time.Second
	h, err := open(t, u, holdfast.WithTTL(ttl)).Lock(testContext(t), "forgotten")
	env.Check(t, err)
	env.Check(t, a.Kill(testContext(t)))
	env.Check(t, a.Restart(testContext(t)))
	next, err := open(t, u, holdfast.WithTTL(ttl)).Lock(testContext(t), "forgotten")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d was granted after token %d", next.Token(), h.Token())
	}
	select {
	case <-h.Context().Done():
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("the holder: %v, want lost", h.Err())
		}
	case <-time.After(ttl):
		wantOver(t, h)
	}
	env.Check(t, h.Release(testContext(t)))
	if err := next.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	env.Check(t, next.Release(testContext(t)))
}
