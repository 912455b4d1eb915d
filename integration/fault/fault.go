// Package fault disturbs the network between a client and a backend: proxies
// (toxiproxy's, as a library) that delay, throttle, cut, swallow and reset.
//
// A client of a blob service, or of one MongoDB member with directConnection=true,
// goes through one [Proxy], whose address takes the place of the server's. A client
// of a replica set goes through a [Mesh] as its dialer.
package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy passes connections on to one address. A fault holds for connections that
// are open and for new ones, until [Proxy.Restore] or the end of the test; faults
// of different kinds add up. Its methods are safe for concurrent use.
type Proxy struct {
	mu    sync.Mutex // toxiproxy's own do not guard what a fault does in two steps
	proxy *toxiproxy.Proxy
	addr  string // toxiproxy sets its own anew with each start
}

// The directions of what a proxy passes on.
const (
	requests = "upstream"
	replies  = "downstream"
)

// New starts a proxy to an address, host:port. It ends with the test.
func New(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	p, err := start(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.stop)
	return p
}

func start(upstream string) (*Proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	// A port outside the range that systems use for outgoing connections, so that
	// nothing takes it while the proxy is cut.
	const first, count, tries = 61000, 4500, 100
	var err error
	for range tries {
		listen := net.JoinHostPort("127.0.0.1", fmt.Sprint(first+rand.IntN(count)))
		p := toxiproxy.NewProxy(server, upstream, listen, upstream)
		if err = p.Start(); err == nil {
			return &Proxy{proxy: p, addr: p.Listen}, nil
		}
	}
	return nil, fmt.Errorf("start a proxy: %w", err)
}

// Addr is where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Latency delays requests and replies, each by d and up to jitter more or less.
func (p *Proxy) Latency(d, jitter time.Duration) error {
	return p.both("latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// LateReplies delays replies by d; requests come through at once.
func (p *Proxy) LateReplies(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add("latency", replies, map[string]any{"latency": d.Milliseconds()})
}

// Bandwidth limits requests and replies to so many kilobytes a second each.
func (p *Proxy) Bandwidth(kilobytes int) error {
	return p.both("bandwidth", map[string]any{"rate": kilobytes})
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	return nil
}

// HalfOpen swallows requests and replies: connections stay open, new ones are
// taken, and nothing comes through.
func (p *Proxy) HalfOpen() error { return p.both("timeout", map[string]any{"timeout": 0}) }

// LoseReplies lets requests through and swallows the replies: what was asked for
// happens, and the client does not learn of it.
func (p *Proxy) LoseReplies() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add("timeout", replies, map[string]any{"timeout": 0})
}

// Reset closes all connections, and resets (RST) new ones at their first request,
// which does not come through.
func (p *Proxy) Reset() error { return p.reset(requests) }

// ResetReplies closes all connections; new ones let requests through and are reset
// (RST) at the first reply.
func (p *Proxy) ResetReplies() error { return p.reset(replies) }

// reset has all connections made anew: only new ones are told to end by RST.
func (p *Proxy) reset(direction string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	return errors.Join(p.add("reset_peer", direction, map[string]any{"timeout": 0}), p.again())
}

// SlowClose has a connection that one side closes stay open to the other side for
// d.
func (p *Proxy) SlowClose(d time.Duration) error {
	return p.both("slow_close", map[string]any{"delay": d.Milliseconds()})
}

// Restore ends all faults. Connections whose data was swallowed are closed.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Toxics.ResetToxics(context.Background())
	return p.again()
}

// again starts the proxy if it is cut.
func (p *Proxy) again() error {
	err := p.proxy.Start()
	if errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return nil
	}
	return err
}

func (p *Proxy) both(kind string, attributes map[string]any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.add(kind, requests, attributes), p.add(kind, replies, attributes))
}

// add puts a fault in place of an earlier one of its kind and direction.
func (p *Proxy) add(kind, direction string, attributes map[string]any) error {
	name := kind + " " + direction
	if p.proxy.Toxics.GetToxic(name) != nil {
		if err := p.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	text, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": direction, "attributes": attributes})
	if err != nil {
		return err
	}
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (p *Proxy) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Toxics.ResetToxics(context.Background())
	p.proxy.Stop()
}

// Mesh is a proxy for each member of a replica set, by the member's address. It is
// the dialer of a client: options.Client().SetDialer(mesh).
type Mesh map[string]*Proxy

// NewMesh starts a proxy for each address. They end with the test.
func NewMesh(tb testing.TB, hosts []string) Mesh {
	tb.Helper()
	m := Mesh{}
	for _, host := range hosts {
		m[host] = New(tb, host)
	}
	return m
}

// DialContext connects to the proxy of an address.
func (m Mesh) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	p, ok := m[address]
	if !ok {
		return nil, fmt.Errorf("no proxy for %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, p.Addr())
}

// Each causes a fault at all members, as in mesh.Each((*fault.Proxy).Cut).
func (m Mesh) Each(cause func(*Proxy) error) error {
	var errs []error
	for _, p := range m {
		errs = append(errs, cause(p))
	}
	return errors.Join(errs...)
}
