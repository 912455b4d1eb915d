package httpserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A server with too many connections closes the one that has been idle for the longest, and no one that has
// a request in progress. A newcomer always gets its answer.
func TestConnectionsAreLimited(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", Healthy)
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-end
		fmt.Fprint(w, "done")
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config = New(mux, 4)
	changed := server.Config.ConnState
	server.Start()
	defer server.Close()
	if changed == nil {
		t.Fatal("no limit")
	}
	slow := make(chan string, 1)
	go func() {
		answer, err := http.Get(server.URL + "/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(answer.Body)
		slow <- string(text)
	}()
	<-began
	var silent []net.Conn
	for range 20 {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		silent = append(silent, conn)
	}
	for range 20 {
		probe := &http.Client{Transport: &http.Transport{}} // a connection of its own, which it keeps
		answer, err := probe.Get(server.URL + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		defer probe.CloseIdleConnections()
	}
	for i, conn := range silent {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("silent connection %d was not closed: %v", i, err)
		}
	}
	close(end)
	if got := <-slow; got != "done" {
		t.Errorf("the request in progress got %q", got)
	}
}

// A connection takes the place of the one whose last change is the oldest; those that answer come last.
func TestWhichConnectionIsClosed(t *testing.T) {
	c := &connections{most: 2, open: map[net.Conn]connection{}}
	var conns []net.Conn
	for range 5 {
		a, b := net.Pipe()
		defer func() { _, _ = a.Close(), b.Close() }()
		conns = append(conns, a)
	}
	for i, step := range []struct {
		conn  int
		state http.ConnState
		close int // -1: none
	}{
		{0, http.StateNew, -1},
		{0, http.StateActive, -1},
		{1, http.StateNew, -1},
		{2, http.StateNew, 1},
		{1, http.StateActive, -1}, // the server notices later that it is closed
		{1, http.StateClosed, -1},
		{2, http.StateActive, -1},
		{3, http.StateNew, 0}, // all answer: the oldest
		{0, http.StateClosed, -1},
		{3, http.StateActive, -1},
		{2, http.StateIdle, -1},
		{4, http.StateNew, 2},
		{2, http.StateClosed, -1},
		{3, http.StateClosed, -1},
		{0, http.StateNew, -1},
	} {
		got := c.note(conns[step.conn], step.state)
		if want := step.close; want < 0 && got != nil || want >= 0 && got != conns[want] {
			t.Fatalf("step %d closes the wrong connection", i)
		}
	}
}

// Nobody can keep a connection by sending nothing, or slowly.
func TestServerHasTimeLimits(t *testing.T) {
	s := New(http.NotFoundHandler(), 3)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("a limit is missing: %+v", s)
	}
}
