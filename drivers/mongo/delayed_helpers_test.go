package mongo

import (
	"bytes"
	"context"
	encoding "encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// delayingDialer connects a client to its servers and delays the next command that contains
// certain texts: the command has left the client, and arrives when the test calls deliver.
type delayingDialer struct {
	mu      sync.Mutex
	texts   []string
	cutOff  func() // called when the command has left the client; can be nil
	delayed chan *delayedConn
}

func newDelayingDialer() *delayingDialer { return &delayingDialer{delayed: make(chan *delayedConn, 1)} }

// client returns a client that connects through the dialer.
func (w *delayingDialer) client(t *testing.T) *mongo.Client {
	t.Helper()
	return mongotest.Connect(t, mongotest.URI(t), options.Client().SetDialer(w))
}

// DialContext implements options.ContextDialer.
func (w *delayingDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &delayedConn{dialer: w, conn: conn}, nil
}

// delayNext delays the next command that contains all these texts.
func (w *delayingDialer) delayNext(texts ...string) { w.delay(nil, texts) }

func (w *delayingDialer) delay(cutOff func(), texts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts, w.cutOff = texts, cutOff
}

// callDelayed delays the next command that contains all these texts, and makes the call that sends it.
// The call's context ends when the command has left the client: no limit in time ends it before that.
func (w *delayingDialer) callDelayed(t *testing.T, call func(ctx context.Context) error, texts ...string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	w.delay(cancel, texts)
	return call(ctx)
}

// matchesNext reports whether a message is the one to be delayed, and what to call then.
func (w *delayingDialer) matchesNext(message []byte) (matches bool, cutOff func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.texts == nil {
		return false, nil
	}
	for _, text := range w.texts {
		if !bytes.Contains(message, []byte(text)) {
			return false, nil
		}
	}
	w.texts = nil
	return true, w.cutOff
}

// deliver sends the delayed command and returns how many documents it matched.
func (w *delayingDialer) deliver(t *testing.T) int64 {
	t.Helper()
	select {
	case c := <-w.delayed:
		matched, err := c.deliver()
		if err != nil {
			t.Fatal(err)
		}
		return matched
	case <-time.After(waitLimit):
		t.Fatal("no command was delayed")
		return 0
	}
}

// delayedConn is a connection. After its command was delayed, the client's side never answers.
type delayedConn struct {
	dialer *delayingDialer

	mu      sync.Mutex
	conn    net.Conn // the client's side
	real    net.Conn // the server's side, once they are separate
	message []byte   // the delayed message
}

func (c *delayedConn) clientConn() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *delayedConn) Write(message []byte) (int, error) {
	matches, cutOff := c.dialer.matchesNext(message)
	if !matches {
		return c.clientConn().Write(message)
	}
	c.mu.Lock()
	c.real, c.message = c.conn, bytes.Clone(message)
	c.conn, _ = net.Pipe()
	c.mu.Unlock()
	c.dialer.delayed <- c
	if cutOff != nil {
		cutOff()
	}
	return len(message), nil
}

func (c *delayedConn) Read(p []byte) (int, error)         { return c.clientConn().Read(p) }
func (c *delayedConn) Close() error                       { return c.clientConn().Close() }
func (c *delayedConn) LocalAddr() net.Addr                { return c.clientConn().LocalAddr() }
func (c *delayedConn) RemoteAddr() net.Addr               { return c.clientConn().RemoteAddr() }
func (c *delayedConn) SetDeadline(at time.Time) error     { return c.clientConn().SetDeadline(at) }
func (c *delayedConn) SetReadDeadline(at time.Time) error { return c.clientConn().SetReadDeadline(at) }

func (c *delayedConn) SetWriteDeadline(at time.Time) error {
	return c.clientConn().SetWriteDeadline(at)
}

func (c *delayedConn) deliver() (matched int64, err error) {
	defer func() { err = errors.Join(err, c.real.Close()) }()
	if err := c.real.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		return 0, err
	}
	if _, err := c.real.Write(c.message); err != nil {
		return 0, err
	}
	// An OP_MSG has a header of 16 bytes, 4 bytes of flags, 1 for the kind of section, the
	// reply.
	head := make([]byte, 21)
	if _, err := io.ReadFull(c.real, head); err != nil {
		return 0, err
	}
	reply := make(bson.Raw, encoding.LittleEndian.Uint32(head)-uint32(len(head)))
	if _, err := io.ReadFull(c.real, reply); err != nil {
		return 0, err
	}
	if ok, _ := reply.Lookup("ok").AsInt64OK(); ok != 1 {
		return 0, errors.New(reply.String())
	}
	n, _ := reply.Lookup("n").AsInt64OK()
	return n, nil
}

// newDelayedLocker returns a Locker and its dialer.
func newDelayedLocker(t *testing.T) (*Locker, *delayingDialer) {
	t.Helper()
	dialer := newDelayingDialer()
	return newTestLocker(t, mongotest.CollectionOf(t, dialer.client(t))), dialer
}
