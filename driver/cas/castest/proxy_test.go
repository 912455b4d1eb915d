package castest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// counter is a server that counts requests, and answers with their number.
type counter struct {
	atomic.Int32
	came chan struct{}
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	n := c.Add(1)
	c.came <- struct{}{}
	_, _ = w.Write([]byte(strconv.Itoa(int(n))))
}

// wait waits for n requests.
func (c *counter) wait(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-c.came:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d requests came", i, n)
		}
	}
}

// Each mode does to the requests and answers what it says.
func TestProxy(t *testing.T) {
	server := &counter{came: make(chan struct{}, 100)}
	s := httptest.NewServer(server)
	defer s.Close()
	p := castest.NewProxy(t, s.Listener.Addr().String())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	send := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+p.Addr(), strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		_, err = io.ReadAll(answer.Body)
		return err
	}
	answered := func(what string, want bool, limit time.Duration) {
		t.Helper()
		if err := send(limit); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	answered("passed", true, time.Minute)
	server.wait(t, 1)

	p.Set(castest.Stall)
	answered("stalled", false, 50*time.Millisecond)
	if n := server.Load(); n != 1 {
		t.Errorf("%d requests while stalled", n)
	}
	p.Set(castest.Pass)
	server.wait(t, 1) // late, although the client has gone

	p.Set(castest.LoseAnswers)
	answered("lost", false, time.Minute)
	server.wait(t, 1)

	p.Set(castest.Refuse)
	answered("refused", false, time.Minute)

	p.Set(castest.Double)
	transport.CloseIdleConnections()
	answered("doubled", true, time.Minute)
	server.wait(t, 2)

	p.Set(castest.Pass)
	p.Cut()
	transport.CloseIdleConnections()
	answered("passed again", true, time.Minute)
	server.wait(t, 1)
	if n := server.Load(); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}

	p.Freeze()
	answered("frozen", false, 50*time.Millisecond)
	answered("on a new connection", true, time.Minute)
	server.wait(t, 1)
	if n := server.Load(); n != 7 {
		t.Errorf("%d requests, and one was frozen", n)
	}
	transport.CloseIdleConnections()
	for end := time.Now().Add(time.Minute); p.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open", p.Open())
		}
	}
}

// A cut ends a request that is under way.
func TestProxyCuts(t *testing.T) {
	came, done := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(came)
		<-done
	}))
	defer s.Close()
	defer close(done)
	p := castest.NewProxy(t, s.Listener.Addr().String())
	go func() {
		<-came
		p.Cut()
	}()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+p.Addr(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := transport.RoundTrip(req); err == nil {
		_ = answer.Body.Close()
		t.Error("answered")
	}
}
