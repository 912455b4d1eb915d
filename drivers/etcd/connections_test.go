package etcd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// One request is lost on a connection that has died silently. The next one has another connection, and so has the watch.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	network := castest.NewProxy(t, etcdtest.Shared(t).Addr())
	prefix := WithPrefix(strings.ToLower(rand.Text()))
	l, err := Open(t.Context(), urlOf(network.Addr()), WithRequestTimeout(time.Second), prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("calls", func(t *testing.T) {
		reports := follow(t, l.store, "k")
		next(t, reports)
		w, err := l.store.Put(t.Context(), "k", []byte("first"), "")
		if err != nil {
			t.Fatal(err)
		}
		next(t, reports)
		network.Freeze()
		var beside sync.WaitGroup
		for range 4 { // all share the connection
			beside.Go(func() { _, _ = l.store.Get(t.Context(), "k") })
		}
		if _, err := l.store.Put(t.Context(), "k", []byte("lost"), w.Version); err == nil || driver.OutcomeKnown(err) {
			t.Errorf("on the dead connection: %v", err)
		}
		beside.Wait()
		if _, err := l.store.Put(t.Context(), "k", []byte("second"), w.Version); err != nil {
			t.Errorf("after it: %v", err)
		}
		for string(next(t, reports).Data) != "second" { // the first report may be that of the watch that has begun anew
			v, err := l.store.Get(t.Context(), "k")
			if err == nil {
				_, err = l.store.Put(t.Context(), "k", []byte("second"), v.Version)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(20 * time.Second); network.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are left open", network.Open())
		}
	}
}

// So it is although no caller waits for long enough to see that the connection is dead.
func TestDeadConnectionOfHastyCallers(t *testing.T) {
	t.Parallel()
	network := castest.NewProxy(t, etcdtest.Shared(t).Addr())
	s := storeAt(t, urlOf(network.Addr()))
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	network.Freeze()
	for end := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := s.Get(ctx, "k")
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A proxy breaks a write off, perhaps after it was done, and net/http of Go up to 1.26 sends it again. That this try is refused says
// nothing of the first one.
func TestRefusalOfAnotherTry(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var requests atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveFrames(conn, &requests)
		}
	}()
	s := storeAt(t, urlOf(listener.Addr().String()))
	s.members.mu.Lock()
	s.members.cluster, s.members.all[0].known = 7, true
	s.members.mu.Unlock()
	_, err = s.Put(t.Context(), "k", []byte("v"), "")
	want := map[int32]string{1: "PROTOCOL_ERROR", 2: "permission denied"}[requests.Load()]
	if err == nil || driver.OutcomeKnown(err) || want == "" || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, after %d requests", err, requests.Load())
	}
}

// serveFrames speaks HTTP/2: it resets the first request with PROTOCOL_ERROR and refuses the next ones.
func serveFrames(conn net.Conn, requests *atomic.Int32) {
	defer func() { _ = conn.Close() }()
	const data, headers, reset, settings, end = 0, 1, 3, 4, 1
	write := func(kind, flags, stream byte, payload string) {
		_, _ = conn.Write(append([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}, payload...))
	}
	text := func(s string) string { return string(rune(len(s))) + s }
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	write(settings, 0, 0, "")
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		switch kind, flags, stream := head[3], head[4], head[8]; {
		case kind == settings && flags == 0:
			write(settings, end, 0, "")
		case kind == data && flags&end != 0 && requests.Add(1) == 1:
			write(reset, 0, stream, "\x00\x00\x00\x01")
		case kind == data && flags&end != 0:
			write(headers, 4|end, stream, "\x88\x00"+text("content-type")+text("application/grpc")+"\x00"+text("grpc-status")+text("7")+
				"\x00"+text("grpc-message")+text("permission denied"))
		}
	}
}

// Connections that are left stay open for the requests that they have, and no longer.
func TestLeftConnections(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	reached, over, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	f.set(methodRange, reply{do: func() { close(reached); <-over }})
	go func() {
		_, err := s.Get(t.Context(), "k")
		ended <- err
	}()
	<-reached
	m := s.members.all[0]
	first := m.connections
	s.members.silent(m, first)
	second := m.connections
	s.members.silent(m, first) // another request has noticed it, too
	if m.connections != second || first == second {
		t.Error("the connections are replaced twice, or never")
	}
	f.set(methodRange, reply{})
	if _, err := s.Get(t.Context(), "k"); err != nil || opened(first) != 1 || opened(second) != 1 {
		t.Errorf("%v, with %d and %d connections", err, opened(first), opened(second))
	}
	close(over)
	if err := <-ended; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	if n := opened(first); n != 0 {
		t.Errorf("%d connections are left open", n)
	}
	// One that is made too late is closed.
	if _, err := first.dial(t.Context(), "tcp", f.addr()); !errors.Is(err, errLeftConnections) || opened(first) != 0 {
		t.Error(err)
	}
}

// A member that is slow to make a connection gets it all the same: the next request waits for the one that is being made.
func TestSlowConnection(t *testing.T) {
	t.Parallel()
	f := &fake{answers: map[string]reply{}}
	s := httptest.NewUnstartedServer(f.handler(t))
	s.EnableHTTP2 = true
	made := make(chan struct{})
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { <-made; return ctx } // before the handshake
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	slow := storeWith(t, Config{Endpoints: []string{s.URL}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		WithRequestTimeout(2*time.Second))
	first := slow.members.all[0].connections
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if _, err := slow.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(made)
	if _, err := slow.Get(t.Context(), "k"); err != nil || slow.members.all[0].connections != first {
		t.Errorf("the connection that was made late is not used: %v", err)
	}
}

// A single member that answers with a failure keeps its watches. One that is silent does not.
func TestWatchesOfASingleMember(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	_, present := s.members.order()
	f.refuse(methodRange, 14, "etcdserver: request timed out")
	if _, err := s.Get(t.Context(), "k"); err == nil || present.Err() != nil {
		t.Errorf("after a failure: %v, %v", err, present.Err())
	}
	m := s.members.all[0]
	s.members.silent(m, m.connections)
	if present.Err() == nil {
		t.Error("the watches stay on a connection that is silent")
	}
	earlier := m.connections
	s.members.silent(m, earlier)
	_, present = s.members.order()
	if s.members.silent(m, earlier); present.Err() != nil {
		t.Error("a late failure of earlier connections ends the watches on those of now")
	}
}

func opened(c *connections) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
