package azblob

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// throughGate returns a Locker that dials the service through a gate.
func (r *testContainer) throughGate() (*locktest.Gate, *Locker) {
	r.t.Helper()
	u, err := url.Parse(r.client.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	g := locktest.NewGate(r.t, u.Host)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, g.Addr)
	}}
	r.t.Cleanup(transport.CloseIdleConnections)
	l, err := New(r.service.Client(r.t, r.name, func(http.RoundTripper) http.RoundTripper { return transport }))
	if err != nil {
		r.t.Fatal(err)
	}
	return g, l
}

// A request that gets no connection was not sent.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	g, l := newTestContainer(t).throughGate()
	g.CheckDeadAddress(t, l, 15*time.Second)
}

// A connection that is cut after the request leaves the outcome unknown.
func TestLostAnswerIsInDoubt(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	used(t, store.locker(), "lost-answer") // makes the blob
	g, l := store.throughGate()
	g.CheckLostAnswer(t, l, store.locker(), request("lost-answer"))
	if _, err := l.TryAcquire(bounded(t), request("next")); !driver.NotSent(err) {
		t.Errorf("the next request: %v: not sent: %v", err, driver.NotSent(err))
	}
}

// A refused connection says nothing of a request that was sent before it: by a transport of the program that repeats requests, or
// by an operation of several requests. What a transport reports that is not Go's is not known either.
func TestRefusedConnectionAfterARequest(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	direct := store.locker()
	for _, name := range []string{"repeated", "after the lease", "another transport"} {
		used(t, direct, name)
	}
	g := locktest.NewGate(t, "127.0.0.1:1")
	g.Close()
	dead := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, g.Addr)
	}}
	refused := func(_ http.RoundTripper, r *http.Request) (*http.Response, error) { return dead.RoundTrip(r) }
	for name, faults := range map[string]map[string]fault{
		"repeated": {reqAcquire: func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			if err := deliver(base, r); err != nil {
				return nil, err
			}
			return dead.RoundTrip(r)
		}},
		"after the lease": {reqRead: refused, reqRelease: refused},
		"another transport": {reqAcquire: func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			if err := deliver(base, r.WithContext(contextWithoutEnd)); err != nil {
				return nil, err
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}},
	} {
		l, w := store.lockerWithFaults()
		for request, f := range faults {
			w.all(request, f)
		}
		_, err := l.TryAcquire(bounded(t), request(name))
		wantUnknown(t, name, err)
		if driver.NotSent(err) {
			t.Errorf("%s: %v counts as not sent", name, err)
		}
		wantHeld(t, direct, name)
	}
}
