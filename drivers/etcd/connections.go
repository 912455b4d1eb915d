package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// connections are those to one member. Over HTTP/2 all requests share one, and there are more only if it has too many streams. If it dies
// silently, all requests hang together. So connections are left once a member has been silent: later requests use others. Those that are
// under way go on, because an answer may be late. HTTP/2 itself would notice by pings, but members close connections that have many.
type connections struct {
	client   *httpstore.Client
	tls      *tls.Config
	patience time.Duration // for a connection to be made, and again for its handshake

	mu    sync.Mutex
	open  map[net.Conn]struct{}
	users int
	left  bool
	// silentSince is when the first of the requests began that have ended by a time limit since the last answer; zero after an answer.
	silentSince time.Time
}

// newConnections makes those to a member. Nothing is sent. config is nil without TLS. limit is that of a request.
//
// They have no time limit for a connection without requests: after it, package net/http makes each request wait for another connection,
// which may fail, although the first one is there.
func newConnections(config *tls.Config, patience, limit time.Duration) *connections {
	c := &connections{patience: patience, open: map[net.Conn]struct{}{}}
	protocols := &http.Protocols{}
	if config == nil {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		c.tls = config.Clone()
		c.tls.NextProtos = []string{"h2"}
	}
	c.client = httpstore.New(&http.Client{Transport: &http.Transport{
		Protocols:          protocols,
		DialContext:        c.dial,
		DialTLSContext:     c.dialTLS,
		DisableCompression: true,
		// A write that hangs would keep others, whose contexts do not end it, too.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: limit},
	}}, maxAnswer+frameHeader)
	return c
}

// use keeps the connections open for a request until done is called.
func (c *connections) use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	return func() {
		c.mu.Lock()
		c.users--
		c.mu.Unlock()
		c.closeUnused()
	}
}

// answered notes that an answer has come.
func (c *connections) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silentSince = time.Time{}
}

// unanswered notes that a request that began then has ended by a time limit, and returns for how long no answer has come. Callers may have
// limits that are too short for one request to show that the connections are dead.
func (c *connections) unanswered(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silentSince.IsZero() || began.Before(c.silentSince) {
		c.silentSince = began
	}
	return time.Since(c.silentSince)
}

// leave closes the connections when no request uses them any more.
func (c *connections) leave() {
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	c.closeUnused()
}

// closeUnused closes the connections if they are left and nobody uses them.
func (c *connections) closeUnused() {
	c.mu.Lock()
	var unused []net.Conn
	if c.left && c.users == 0 {
		for one := range c.open {
			unused = append(unused, one)
		}
	}
	c.mu.Unlock()
	for _, one := range unused {
		_ = one.Close()
	}
}

var errLeftConnections = errors.New("no request waits for the connection any more")

// dial makes a connection. It may end later than the request that has begun it.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	made, err := (&net.Dialer{Timeout: c.patience}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &connection{Conn: made, of: c}
	c.mu.Lock()
	unused := c.left && c.users == 0
	if !unused {
		c.open[one] = struct{}{}
	}
	c.mu.Unlock()
	if unused {
		_ = made.Close()
		return nil, errLeftConnections
	}
	return one, nil
}

// dialTLS makes a connection with TLS.
func (c *connections) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	plain, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := c.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address) // it has a port, or it would not have been dialed
	}
	limited, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	secured := tls.Client(plain, config)
	err = secured.HandshakeContext(limited)
	if err == nil && secured.ConnectionState().NegotiatedProtocol != config.NextProtos[0] {
		_ = plain.Close()
		return nil, errors.New("the member, or a proxy before it, offers no HTTP/2")
	}
	if err != nil {
		_ = plain.Close()
		return nil, c.noTLS(limited, err)
	}
	return secured, nil
}

// noTLS is the error of a handshake. limited is its context.
func (c *connections) noTLS(limited context.Context, err error) error {
	if untrusted := serverurl.Untrusted(err); untrusted != nil {
		return untrusted
	}
	if limited.Err() != nil {
		return errors.New("the TLS handshake has not ended in time")
	}
	return fmt.Errorf("the TLS handshake has failed: %w; if the member has no TLS, the scheme is etcd", err)
}

// connection is one of the connections. Closing it forgets it.
type connection struct {
	net.Conn
	of *connections
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
