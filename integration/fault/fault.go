// Package fault injects network faults between a client and a backend. Its proxies, which use
// toxiproxy as a library, delay, cut, drop and reset.
//
// A client of a blob service, or of one MongoDB member with directConnection=true, goes through
// one [Proxy], whose address replaces the server's. A client of a replica set uses a [Mesh] as
// its dialer.
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

// Proxy forwards connections to one address. A fault affects open and new connections, until
// [Proxy.Restore] or the end of the test. Faults of different kinds add up. Its methods are safe
// for concurrent use.
type Proxy struct {
	mu    sync.Mutex // some faults take two steps, which toxiproxy's own locks do not cover
	proxy *toxiproxy.Proxy
	addr  string // the address that was chosen; toxiproxy may change its own at each start
}

// The directions of the data that a proxy forwards, as toxiproxy names them.
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
	// The port is outside the range that systems use for outgoing connections, so that nothing
	// else takes it while the proxy is cut.
	const first, count, attempts = 61000, 4500, 100
	var err error
	for range attempts {
		listen := net.JoinHostPort("127.0.0.1", fmt.Sprint(first+rand.IntN(count)))
		p := toxiproxy.NewProxy(server, upstream, listen, upstream)
		if err = p.Start(); err == nil {
			return &Proxy{proxy: p, addr: p.Listen}, nil
		}
	}
	return nil, fmt.Errorf("fault: start a proxy: %w", err)
}

// Addr returns the address that clients connect to, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Latency delays requests and replies, each by d, give or take up to jitter.
func (p *Proxy) Latency(d, jitter time.Duration) error {
	return p.both("latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// LateReplies delays replies by d. Requests are not delayed.
func (p *Proxy) LateReplies(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add("latency", replies, map[string]any{"latency": d.Milliseconds()})
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	return nil
}

// HalfOpen drops requests and replies. Connections stay open and new ones are accepted, but
// nothing comes through.
func (p *Proxy) HalfOpen() error { return p.both("timeout", map[string]any{"timeout": 0}) }

// LoseReplies forwards requests and drops the replies: the server executes a request, and the
// client gets no answer.
func (p *Proxy) LoseReplies() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add("timeout", replies, map[string]any{"timeout": 0})
}

// Reset closes all connections. New ones are reset (RST) at their first request, which does not
// come through.
func (p *Proxy) Reset() error { return p.reset(requests) }

// ResetReplies closes all connections. New ones forward requests and are reset (RST) at the first
// reply.
func (p *Proxy) ResetReplies() error { return p.reset(replies) }

// reset restarts the proxy, because toxiproxy resets only new connections.
func (p *Proxy) reset(direction string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	return errors.Join(p.add("reset_peer", direction, map[string]any{"timeout": 0}), p.restart())
}

// Restore ends all faults. Connections on which data was dropped are closed.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Toxics.ResetToxics(context.Background())
	return p.restart()
}

// restart starts the proxy if it is cut.
func (p *Proxy) restart() error {
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

// add injects a fault. It replaces an earlier one of the same kind and direction.
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

// Mesh has a proxy for each member of a replica set, by the member's address. It is a client's
// dialer: options.Client().SetDialer(mesh).
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
		return nil, fmt.Errorf("fault: no proxy for %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, p.Addr())
}

// Each injects a fault at all members, as in mesh.Each((*fault.Proxy).Cut).
func (m Mesh) Each(inject func(*Proxy) error) error {
	var errs []error
	for _, p := range m {
		errs = append(errs, inject(p))
	}
	return errors.Join(errs...)
}
