package castest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Mode is what a [Proxy] does with the bytes of its connections.
type Mode int

// The modes of a Proxy.
const (
	// Pass sends all bytes on.
	Pass Mode = iota
	// Stall keeps all bytes until another mode is set. Then they are sent on, also those of clients that have given up.
	Stall
	// Refuse closes all connections, and the new ones as they come.
	Refuse
	// LoseAnswers sends what clients say to the server, and closes a connection instead of sending its answer on.
	LoseAnswers
	// Double sends what clients say on new connections to the server twice, on two connections, and drops the second answer.
	Double
)

// Proxy is a TCP proxy before the server of a store, which fails as networks fail. A driver's test connects to its address. What the
// calls of a Locker then return must be true or unknown. With TLS, Double only doubles the handshake.
type Proxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when another mode is set
	closed  bool
	conns   map[net.Conn]struct{}
	dead    *atomic.Bool // of the connections that are made now
}

// NewProxy makes a proxy before a server at host:port. The test closes it at its end.
func NewProxy(tb testing.TB, server string) *Proxy {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: listener, server: server, changed: make(chan struct{}), conns: map[net.Conn]struct{}{},
		dead: &atomic.Bool{}}
	p.work.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is the address of the proxy, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set sets what becomes of the bytes from now on. Connections that are open stay open, unless the mode is Refuse.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if m == Refuse {
		p.Cut()
	}
}

// Cut closes all connections that are open.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Freeze has the connections that are open pass nothing any more, for good. Neither side is told, as when a firewall has forgotten them.
// New connections are as the mode says.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead.Store(true)
	p.dead = &atomic.Bool{}
}

// Open is how many connections are open, those to the server included.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed, p.mode = true, Refuse
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.Cut()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

// serve passes the bytes of one client on until both sides have ended.
func (p *Proxy) serve(client net.Conn) {
	defer p.hold(client)()
	mode, _ := p.now()
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	if mode == Refuse {
		return
	}
	servers := make([]net.Conn, 1, 2)
	if mode == Double {
		servers = servers[:2]
	}
	for i := range servers {
		ctx, cancel := context.WithTimeout(context.Background(), lateLimit)
		server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.server)
		cancel()
		if err != nil {
			return
		}
		defer p.hold(server)()
		servers[i] = server
	}
	var work sync.WaitGroup
	work.Go(func() {
		p.pump(dead, client, servers, false)
		for _, s := range servers {
			closeWrite(s)
			_ = s.SetReadDeadline(time.Now().Add(lateLimit)) // the answer to a request whose client has gone
		}
	})
	for i, s := range servers {
		work.Go(func() {
			if i > 0 {
				p.pump(dead, s, nil, true)
				return
			}
			if p.pump(dead, s, []net.Conn{client}, true); !dead.Load() {
				closeWrite(client)
			}
		})
	}
	work.Wait()
}

// closeWrite says that no more bytes come.
func closeWrite(c net.Conn) {
	if tcp, is := c.(*net.TCPConn); is {
		_ = tcp.CloseWrite()
	}
}

// pump copies bytes until one side ends.
func (p *Proxy) pump(dead *atomic.Bool, from net.Conn, to []net.Conn, answers bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !dead.Load() {
			mode := p.await()
			if mode == Refuse {
				return
			}
			if mode == LoseAnswers && answers {
				for _, c := range to {
					_ = c.Close()
				}
				to = nil
			}
			for _, c := range to {
				if _, err := c.Write(buffer[:n]); err != nil && !answers {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// now returns the mode, and what is closed when another one is set.
func (p *Proxy) now() (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

// await returns the mode as soon as it is not Stall.
func (p *Proxy) await() Mode {
	for {
		mode, changed := p.now()
		if mode != Stall {
			return mode
		}
		<-changed
	}
}

// hold keeps a connection for Cut until release, which closes it.
func (p *Proxy) hold(c net.Conn) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c] = struct{}{}; p.closed {
		_ = c.Close()
	}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}
}
