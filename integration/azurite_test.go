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

// The blob service refuses two requests of five, with 503 "ServerBusy" and with 429, while
// clients add to a number under the lock and another client holds one — the holder loses
// nothing, no addition is lost, and additions go on.
func TestThrottling(t *testing.T) {
	t.Parallel()
	a := env.SharedAzurite(t)
	var refused atomic.Int64
	u := throttled(t, a.FreshURL(t), &refused)
	h, err := open(t, u, holdfast.WithTTL(15*time.Second)).Lock(within(t), "kept")
	env.Check(t, err)
	c := &counter{t: t}
	stop := c.contend(u, 4, holdfast.WithTTL(15*time.Second), holdfast.WithPollInterval(500*time.Millisecond))
	defer stop()
	for end := time.Now().Add(35 * time.Second); time.Now().Before(end); {
		c.more(1)
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

// throttled is a blob service's URL through a proxy that refuses many requests.
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

// Azurite is stopped and started again, with its state on disk, while a lock is held — the
// holder keeps it by its next renewal, and the next token is higher. (Not tried: another's
// acquire before that renewal. A restarted Azurite counts every lease as expired; Azure
// does not restart.)
func TestAzuriteRestartedWithItsState(t *testing.T) {
	t.Parallel()
	a := env.StartAzurite(t, true)
	u := a.FreshURL(t)
	const ttl = 60 * time.Second
	holder, waiter := open(t, u, holdfast.WithTTL(ttl)), open(t, u, holdfast.WithTTL(ttl))
	h, err := holder.Lock(within(t), "kept")
	env.Check(t, err)
	env.Check(t, a.Stop(within(t)))
	if _, err := waiter.TryLock(within(t), "another"); err == nil || errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("while the service is down: %v, want an error of another kind", err)
	}
	env.Check(t, a.Restart(within(t)))
	left := h.LostIn()
	eventually(t, "a renewal", func() bool { return h.Err() != nil || h.LostIn() > left })
	if err := h.Err(); err != nil {
		t.Fatalf("the holder, which had %v left after the restart: %v", left, err)
	}
	if _, err := waiter.TryLock(within(t), "kept"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("after the renewal: %v, want held", err)
	}
	env.Check(t, h.Release(within(t)))
	next, err := waiter.Lock(within(t), "kept")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
}

// Azurite is killed while a lock is held, and its state is lost — beyond that no lock
// service can promise exclusion: the holder is told by its next renewal and not later than
// its deadline, and the next token is higher although there is no record of the last.
func TestAzuriteStateLost(t *testing.T) {
	t.Parallel()
	a := env.StartAzurite(t, false)
	u := a.FreshURL(t)
	const ttl = 15 * time.Second
	h, err := open(t, u, holdfast.WithTTL(ttl)).Lock(within(t), "forgotten")
	env.Check(t, err)
	env.Check(t, a.Kill(within(t)))
	env.Check(t, a.Restart(within(t)))
	next, err := open(t, u, holdfast.WithTTL(ttl)).Lock(within(t), "forgotten")
	env.Check(t, err)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	select {
	case <-h.Context().Done():
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("the holder: %v, want lost", h.Err())
		}
	case <-time.After(ttl):
		t.Error("the holder lives on after its deadline")
	}
	env.Check(t, h.Release(within(t)))
	if err := next.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	env.Check(t, next.Release(within(t)))
}
