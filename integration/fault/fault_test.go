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
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// echo is a server that sends back each byte and counts them.
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

// roundTrip sends n bytes and reads as many, within a timeout.
func roundTrip(conn net.Conn, n int, timeout time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := conn.SetDeadline(start.Add(timeout)); err != nil {
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

// limit is the time limit of what must succeed.
const limit = 20 * time.Second

func expectEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := roundTrip(conn, 1, limit); err != nil {
		t.Errorf("no echo: %v", err)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLatency(t *testing.T) {
	p := fault.New(t, newEcho(t).addr)
	conn := dial(t, p)
	expectEcho(t, conn)
	noError(t, p.Latency(time.Second, 0))
	noError(t, p.Latency(100*time.Millisecond, 0)) // replaces the first
	took, err := roundTrip(conn, 1, limit)
	if err != nil || took < 200*time.Millisecond {
		t.Errorf("the answer came after %s, %v", took, err)
	}
	noError(t, p.Restore())
	expectEcho(t, conn)
}

func TestCut(t *testing.T) {
	p := fault.New(t, newEcho(t).addr)
	conn := dial(t, p)
	expectEcho(t, conn)
	noError(t, p.Cut())
	if _, err := roundTrip(conn, 1, limit); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	noError(t, p.Cut())
	noError(t, p.Restore())
	expectEcho(t, dial(t, p))
}

func TestHalfOpen(t *testing.T) {
	e := newEcho(t)
	p := fault.New(t, e.addr)
	old := dial(t, p)
	expectEcho(t, old)
	noError(t, p.HalfOpen())
	for name, conn := range map[string]net.Conn{"old": old, "new": dial(t, p)} {
		if _, err := roundTrip(conn, 1, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s connection: %v", name, err)
		}
	}
	if n := e.bytes.Load(); n != 1 {
		t.Errorf("%d bytes came through", n)
	}
	noError(t, p.Restore())
	expectEcho(t, dial(t, p))
}

func TestLoseReplies(t *testing.T) {
	e := newEcho(t)
	p := fault.New(t, e.addr)
	conn := dial(t, p)
	noError(t, p.LoseReplies())
	if _, err := conn.Write([]byte{0}); err != nil { // without a deadline, so that it is certainly sent
		t.Fatal(err)
	}
	noError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection without replies: %v", err)
	}
	locktest.Eventually(t, "the request comes through", func() bool { return e.bytes.Load() == 1 })
	noError(t, p.Restore())
	expectEcho(t, dial(t, p))
}

func TestReset(t *testing.T) {
	for name, reset := range map[string]func(*fault.Proxy) error{"request": (*fault.Proxy).Reset, "reply": (*fault.Proxy).ResetReplies} {
		t.Run(name, func(t *testing.T) {
			e := newEcho(t)
			p := fault.New(t, e.addr)
			old := dial(t, p)
			expectEcho(t, old)
			noError(t, reset(p))
			if _, err := roundTrip(old, 1, limit); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the old connection: %v", err)
			}
			before := e.bytes.Load()
			if _, err := roundTrip(dial(t, p), 1, limit); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the new connection: %v", err)
			}
			if came := e.bytes.Load() - before; (came == 1) != (name == "reply") {
				t.Errorf("%d bytes came through", came)
			}
			noError(t, p.Restore())
			expectEcho(t, dial(t, p))
		})
	}
}

// A client of a replica set uses one proxy for each member.
func TestReplicaSetThroughMesh(t *testing.T) {
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	mesh := fault.NewMesh(t, rs.Hosts())
	client := mongotest.Connect(t, rs.URI(), options.Client().SetDialer(mesh))
	coll := mongotest.CollectionOf(t, client)
	insert := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := coll.InsertOne(ctx, bson.D{{Key: "a", Value: 1}})
		return err
	}
	noError(t, insert(limit))
	noError(t, mesh.Each((*fault.Proxy).HalfOpen))
	if insert(300*time.Millisecond) == nil {
		t.Error("a write came through half-open connections")
	}
	noError(t, mesh.Each((*fault.Proxy).Restore))
	noError(t, insert(limit))
}

// Each fault has a proxy of its own here. toxiproxy cannot handle two faults within a millisecond
// while connections end.
func TestProxiesLeaveNoGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("faults", func(t *testing.T) {
		echo := newEcho(t)
		for _, inject := range []func(p *fault.Proxy) error{
			func(p *fault.Proxy) error { return p.Latency(time.Minute, 0) },
			(*fault.Proxy).HalfOpen, (*fault.Proxy).Cut, (*fault.Proxy).Restore, (*fault.Proxy).Reset, (*fault.Proxy).LoseReplies,
		} {
			p := fault.New(t, echo.addr)
			for range 2 { // a connection from before the fault, and one during it
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // cut
				}
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = roundTrip(conn, 1, 10*time.Millisecond)
				noError(t, inject(p))
			}
		}
	})
	err := goleak.Find(before) // waits for half a second
	for end := time.Now().Add(limit); err != nil && time.Now().Before(end); {
		err = goleak.Find(before)
	}
	if err != nil {
		t.Error(err)
	}
}
