package locktest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Gate is a server's address, through which connections pass until it is closed. Then nothing listens there.
type Gate struct {
	Addr     string
	upstream string
	listener net.Listener
	pumps    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
	text   []byte // of the request whose answer is lost; or nil
}

// NewGate opens a gate to a server. It is closed at the end of the test.
func NewGate(tb testing.TB, upstream string) *Gate {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gate{Addr: listener.Addr().String(), upstream: upstream, listener: listener, conns: map[net.Conn]bool{}}
	g.pumps.Go(g.accept)
	tb.Cleanup(func() {
		g.Close()
		g.pumps.Wait()
	})
	return g
}

// Close closes the gate, with all connections.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	_ = g.listener.Close()
	for c := range g.conns {
		_ = c.Close()
	}
}

// LoseAnswerTo closes the gate in place of passing on the answer to the next request with this text in it.
func (g *Gate) LoseAnswerTo(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = []byte(text)
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.upstream) //nolint:noctx // the server is on this machine
		if err != nil {
			_ = client.Close()
			continue
		}
		lost := make(chan struct{})
		if g.add(client, server) {
			g.pumps.Go(func() { g.pump(client, server, func(sent []byte) { g.note(sent, lost) }) })
			g.pumps.Go(func() {
				g.pump(server, client, func([]byte) {
					select {
					case <-lost:
						g.Close()
					default:
					}
				})
			})
		}
	}
}

// add reports whether the gate is open still. Otherwise it closes the connections.
func (g *Gate) add(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.conns[c] = true; g.closed {
			_ = c.Close()
		}
	}
	return !g.closed
}

// note closes lost if the answer to what a client has sent is to be lost.
func (g *Gate) note(sent []byte, lost chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.text != nil && bytes.Contains(sent, g.text) {
		g.text = nil
		close(lost)
	}
}

// pump passes on what one side sends, after a call of seen.
func (g *Gate) pump(from, to net.Conn, seen func([]byte)) {
	defer to.Close()   //nolint:errcheck // the other side notices it
	defer from.Close() //nolint:errcheck // as above
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if n > 0 {
			seen(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// CheckDeadAddress checks what a client does whose Locker reaches its server through the gate. A request that cannot be sent is
// no doubt, so after it Shutdown returns at once and without an error. The Locker must have no connection whose end it
// has not noticed yet.
func (g *Gate) CheckDeadAddress(tb testing.TB, l driver.Locker, ttl time.Duration) {
	tb.Helper()
	c, err := holdfast.New(l, holdfast.WithTTL(ttl))
	if err != nil {
		tb.Fatal(err)
	}
	g.Close()
	// What goes to a connection that has ended, unnoticed by the client library, may have been sent. A failed read finds that out.
	if _, err := c.Inspect(context.WithoutCancel(tb.Context()), "job"); err == nil {
		tb.Error("Inspect, while nothing listens: no error")
	}
	err = c.TryDo(context.WithoutCancel(tb.Context()), "job", func(context.Context) error { return nil })
	if !driver.NotSent(err) {
		tb.Errorf("TryDo, while nothing listens: %v; want an error of a request that was not sent", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 30*time.Second)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil {
		tb.Errorf("Shutdown after TryDo, while nothing listens: %v", err)
	}
}

// CheckLostAnswer checks that a request whose answer is lost is in doubt, although nothing listens afterwards when the client library
// repeats it. direct reaches the server without the gate.
func (g *Gate) CheckLostAnswer(tb testing.TB, l, direct driver.Locker, req driver.Request) {
	tb.Helper()
	g.LoseAnswerTo(req.Name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 5*time.Second)
	defer cancel()
	_, err := l.TryAcquire(ctx, req)
	if err == nil || driver.OutcomeKnown(err) || driver.NotSent(err) {
		tb.Errorf("a request whose answer was lost: %v (not sent: %v); want an unknown outcome", err, driver.NotSent(err))
	}
	record, err := direct.Inspect(context.WithoutCancel(tb.Context()), req.Name)
	if err != nil || record.State != driver.StateHeld {
		tb.Errorf("the request was not applied: the lock is %v, %v", record.State, err)
	}
}
