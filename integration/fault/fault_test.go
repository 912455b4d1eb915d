package fault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// echo answers each byte with itself and counts them.
type echo struct {
	addr  string
	bytes atomic.Int64
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				buf := make([]byte, 4096)
				for {
					n, err := conn.Read(buf)
					e.bytes.Add(int64(n))
					if _, werr := conn.Write(buf[:n]); err != nil || werr != nil {
						return
					}
				}
			}()
		}
	}()
	return e
}

func dial(t *testing.T, p *fault.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends n bytes and reads as many, for at most limit.
func ask(conn net.Conn, n int, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := conn.SetDeadline(start.Add(limit)); err != nil {
		return 0, err
	}
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, n))
		failed <- err
	}()
	_, err := io.ReadFull(conn, make([]byte, n))
	return time.Since(start), errors.Join(err, <-failed)
}

const long = 20 * time.Second

func works(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := ask(conn, 1, long); err != nil {
		t.Errorf("it does not work: %v", err)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLatency(t *testing.T) {
	p := fault.New(t, newEcho(t).addr)
	conn := dial(t, p)
	works(t, conn)
	do(t, p.Latency(time.Second, 0))
	do(t, p.Latency(100*time.Millisecond, 0)) // in place of the first
	took, err := ask(conn, 1, long)
	if err != nil || took < 200*time.Millisecond {
		t.Errorf("an answer after %s, %v", took, err)
	}
	do(t, p.Restore())
	works(t, conn)
}

func TestBandwidth(t *testing.T) {
	p := fault.New(t, newEcho(t).addr)
	conn := dial(t, p)
	do(t, p.Bandwidth(100))
	took, err := ask(conn, 50_000, long)
	if err != nil || took < 400*time.Millisecond {
		t.Errorf("50 kB at 100 kB/s after %s, %v", took, err)
	}
	do(t, p.Restore())
	works(t, conn)
}

func TestCut(t *testing.T) {
	p := fault.New(t, newEcho(t).addr)
	conn := dial(t, p)
	works(t, conn)
	do(t, p.Cut())
	if _, err := ask(conn, 1, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	do(t, p.Cut())
	do(t, p.Restore())
	works(t, dial(t, p))
}

func TestHalfOpen(t *testing.T) {
	e := newEcho(t)
	p := fault.New(t, e.addr)
	old := dial(t, p)
	works(t, old)
	do(t, p.HalfOpen())
	for name, conn := range map[string]net.Conn{"old": old, "new": dial(t, p)} {
		if _, err := ask(conn, 1, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s connection: %v", name, err)
		}
	}
	if n := e.bytes.Load(); n != 1 {
		t.Errorf("%d bytes came through", n)
	}
	do(t, p.Restore())
	works(t, dial(t, p))
}

func TestLoseReplies(t *testing.T) {
	e := newEcho(t)
	p := fault.New(t, e.addr)
	conn := dial(t, p)
	do(t, p.LoseReplies())
	if _, err := ask(conn, 1, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection without replies: %v", err)
	}
	for end := time.Now().Add(long); e.bytes.Load() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request did not come through")
		}
	}
	do(t, p.Restore())
	works(t, dial(t, p))
}

func TestReset(t *testing.T) {
	for name, reset := range map[string]func(*fault.Proxy) error{"request": (*fault.Proxy).Reset, "reply": (*fault.Proxy).ResetReplies} {
		t.Run(name, func(t *testing.T) {
			e := newEcho(t)
			p := fault.New(t, e.addr)
			old := dial(t, p)
			works(t, old)
			do(t, reset(p))
			if _, err := ask(old, 1, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the old connection: %v", err)
			}
			before := e.bytes.Load()
			if _, err := ask(dial(t, p), 1, long); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the new connection: %v", err)
			}
			if came := e.bytes.Load() - before; (came == 1) != (name == "reply") {
				t.Errorf("%d bytes came through", came)
			}
			do(t, p.Restore())
			works(t, dial(t, p))
		})
	}
}

func TestSlowClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := fault.New(t, l.Addr().String())
	do(t, p.SlowClose(300*time.Millisecond))
	conn := dial(t, p)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	do(t, server.Close())
	start := time.Now()
	if err := conn.SetReadDeadline(start.Add(long)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) < 200*time.Millisecond {
		t.Errorf("closed after %s: %v", time.Since(start), err)
	}
}

// A client of a replica set goes through one proxy per member.
func TestMesh(t *testing.T) {
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	mesh := fault.NewMesh(t, rs.Hosts())
	client := mongotest.Connect(t, rs.URI(), options.Client().SetDialer(mesh))
	coll := mongotest.CollectionOf(t, client)
	insert := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := coll.InsertOne(ctx, bson.D{{Key: "a", Value: 1}})
		return err
	}
	do(t, insert(long))
	do(t, mesh.Each((*fault.Proxy).HalfOpen))
	if insert(300*time.Millisecond) == nil {
		t.Error("a write came through half-open connections")
	}
	do(t, mesh.Each((*fault.Proxy).Restore))
	do(t, insert(long))
}

// Each fault has a proxy of its own here: one fault within a millisecond of another, while
// connections end, is more than the proxy's library bears.
func TestProxiesLeaveNoGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("faults", func(t *testing.T) {
		echo := newEcho(t)
		for _, cause := range []func(p *fault.Proxy) error{
			func(p *fault.Proxy) error { return p.Latency(time.Minute, 0) },
			(*fault.Proxy).HalfOpen, (*fault.Proxy).Cut, (*fault.Proxy).Restore, (*fault.Proxy).Reset, (*fault.Proxy).LoseReplies,
			func(p *fault.Proxy) error { return p.SlowClose(time.Minute) },
		} {
			p := fault.New(t, echo.addr)
			for range 2 { // a connection from before, and one that meets the fault
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // cut
				}
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = ask(conn, 1, 10*time.Millisecond)
				do(t, cause(p))
			}
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
