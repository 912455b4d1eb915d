package mongo

import (
	"bytes"
	"context"
	encoding "encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/leases"
)

// lateWire connects a client to its servers, and keeps back the next command that holds
// all of the given texts: it has left the client, and arrives when the test says so.
type lateWire struct {
	mu     sync.Mutex
	texts  []string
	caught chan *lateConn
}

func newLateWire() *lateWire { return &lateWire{caught: make(chan *lateConn, 1)} }

// client is a client whose commands travel on the wire.
func (w *lateWire) client(t *testing.T) *mongo.Client {
	t.Helper()
	return mongotest.Connect(t, mongotest.URI(t), options.Client().SetDialer(w))
}

// DialContext implements the driver's dialer.
func (w *lateWire) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &lateConn{wire: w, conn: conn}, nil
}

// next has the next command with all these texts kept back.
func (w *lateWire) next(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = texts
}

// takes reports whether a message is the one to be kept back.
func (w *lateWire) takes(message []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.texts == nil {
		return false
	}
	for _, text := range w.texts {
		if !bytes.Contains(message, []byte(text)) {
			return false
		}
	}
	w.texts = nil
	return true
}

// deliver has the command arrive that was kept back, and returns how many documents it
// matched.
func (w *lateWire) deliver(t *testing.T) int64 {
	t.Helper()
	select {
	case c := <-w.caught:
		matched, err := c.deliver()
		if err != nil {
			t.Fatal(err)
		}
		return matched
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was kept back")
		return 0
	}
}

// lateConn is a connection. Once its command was kept back, the client is left with one
// that never answers.
type lateConn struct {
	wire *lateWire

	mu   sync.Mutex
	conn net.Conn // the client's
	real net.Conn // the server's, once they are two
	late []byte   // the message that was kept back
}

func (c *lateConn) clients() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *lateConn) Write(message []byte) (int, error) {
	if !c.wire.takes(message) {
		return c.clients().Write(message)
	}
	c.mu.Lock()
	c.real, c.late = c.conn, bytes.Clone(message)
	c.conn, _ = net.Pipe()
	c.mu.Unlock()
	c.wire.caught <- c
	return len(message), nil
}

func (c *lateConn) Read(p []byte) (int, error)         { return c.clients().Read(p) }
func (c *lateConn) Close() error                       { return c.clients().Close() }
func (c *lateConn) LocalAddr() net.Addr                { return c.clients().LocalAddr() }
func (c *lateConn) RemoteAddr() net.Addr               { return c.clients().RemoteAddr() }
func (c *lateConn) SetDeadline(at time.Time) error     { return c.clients().SetDeadline(at) }
func (c *lateConn) SetReadDeadline(at time.Time) error { return c.clients().SetReadDeadline(at) }
func (c *lateConn) SetWriteDeadline(at time.Time) error {
	return c.clients().SetWriteDeadline(at)
}

func (c *lateConn) deliver() (matched int64, err error) {
	defer func() { err = errors.Join(err, c.real.Close()) }()
	if err := c.real.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.real.Write(c.late); err != nil {
		return 0, err
	}
	// An OP_MSG: a header of 16 bytes, 4 of flags, 1 for the kind of section, the reply.
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

// newLateLocker is a Locker whose commands travel on a wire, and which gives them up soon.
func newLateLocker(t *testing.T) (*Locker, *lateWire) {
	t.Helper()
	wire := newLateWire()
	return newTestLocker(t, mongotest.CollectionOf(t, wire.client(t)), WithCommandTimeout(time.Second)), wire
}

// A write of data that was given up and arrives late changes nothing once a later one has
// succeeded, and no update goes by data of before it.
func TestLateDataWrite(t *testing.T) {
	t.Parallel()
	l, wire := newLateLocker(t)
	client, err := holdfast.New(l, holdfast.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	m, err := leases.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for what, c := range map[string]struct {
		during  bool // the second update: between its read and its write
		want    string
		matched int64
	}{"after": {false, "new", 0}, "during": {true, "old new", 1}} {
		name := "update " + what
		if err := m.Add(name); err != nil {
			t.Fatal(err)
		}
		h, ok := m.Hold(name)
		for ; !ok; h, ok = m.Hold(name) {
			time.Sleep(time.Millisecond)
		}
		wire.next("update\x00", name, "old ")
		err := h.UpdateData(ctx, func([]byte) ([]byte, error) { return []byte("old "), nil })
		wantUnknown(t, err)
		late := c.during
		err = h.UpdateData(ctx, func(old []byte) ([]byte, error) {
			if late {
				late = false
				if n := wire.deliver(t); n != c.matched {
					t.Errorf("%s: the late write matched %d documents", what, n)
				}
			}
			return append(old, "new"...), nil
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !c.during {
			if n := wire.deliver(t); n != c.matched {
				t.Errorf("%s: the late write matched %d documents", what, n)
			}
		}
		if data, err := h.Data(ctx); err != nil || string(data) != c.want {
			t.Errorf("%s: the data are %q, want %q; %v", what, data, c.want, err)
		}
		if c.during {
			continue
		}
		wire.next("update\x00", name, "late")
		wantUnknown(t, h.WriteData(ctx, []byte("late")))
		if err := h.WriteData(ctx, []byte("last")); err != nil {
			t.Error(err)
		}
		if n := wire.deliver(t); n != 0 {
			t.Errorf("the late write matched %d documents", n)
		}
		if data, err := h.Data(ctx); err != nil || string(data) != "last" {
			t.Errorf("the data are %q; %v", data, err)
		}
	}
}

// A record of an earlier version of this package has no count of the writes.
func TestDataOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	req := request("n", "a")
	req.Data = []byte("old")
	lease := acquire(t, l, req)
	change(t, coll, "n", field(fieldWrites, nothing))
	data, at, err := l.ReadData(ctx, "n")
	if string(data) != "old" || at != granted(lease) || err != nil {
		t.Fatalf("%q, %+v, %v", data, at, err)
	}
	if err := l.WriteData(ctx, lease, []byte("one"), at.Next()); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := l.WriteData(ctx, lease, []byte(text), at); err != nil {
			t.Fatal(err)
		}
		if err := l.WriteData(ctx, lease, []byte("late"), at); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		at = at.Next()
	}
	if data, now, err := l.ReadData(ctx, "n"); string(data) != "two" || now != at || err != nil {
		t.Errorf("%q, %+v, %v", data, now, err)
	}
}

// A break that arrives late leaves the next holder alone.
func TestLateBreak(t *testing.T) {
	t.Parallel()
	l, wire := newLateLocker(t)
	ctx := bounded(t)
	for what, call := range map[string]func() error{
		"break":     func() error { return l.Break(ctx, "n") },
		"break now": func() error { return l.BreakNow(ctx, "n") },
	} {
		first := acquire(t, l, request("n", what+" first"))
		wire.next("update\x00", fieldBroken)
		wantUnknown(t, call())
		if err := l.Release(ctx, first); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, l, request("n", what+" next"))
		if n := wire.deliver(t); n != 0 {
			t.Errorf("%s: the late command matched %d documents", what, n)
		}
		if err := l.Renew(ctx, next); err != nil {
			t.Errorf("%s: the next holder: %v", what, err)
		}
		if err := l.Release(ctx, next); err != nil {
			t.Fatal(err)
		}
	}
}

// An expired lease that nobody took may be renewed, but writes no data: the lock is free.
func TestExpiredLeaseWritesNoData(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "a"))
	change(t, coll, "n", field(fieldExpiresAt, time.Now().Add(-time.Second)))
	if err := l.WriteData(ctx, lease, []byte("late"), granted(lease)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if err := l.Renew(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if data, at, err := l.ReadData(ctx, "n"); data != nil || at != granted(lease) || err != nil {
		t.Errorf("%q, %+v, %v", data, at, err)
	}
	if err := l.WriteData(ctx, lease, []byte("in time"), granted(lease)); err != nil {
		t.Error(err)
	}
}

// Close cuts off a call whose answer does not come, also on the program's own client.
func TestCloseCutsOffACall(t *testing.T) {
	t.Parallel()
	wire := newLateWire()
	l := newTestLocker(t, mongotest.CollectionOf(t, wire.client(t)), WithCommandTimeout(30*time.Second))
	ctx := bounded(t)
	wire.next("findAndModify\x00", "cut off")
	answer := make(chan error, 1)
	go func() {
		_, err := l.TryAcquire(ctx, request("cut off", "a"))
		answer <- err
	}()
	caught := <-wire.caught
	closeLocker(t, l)
	select {
	case err := <-answer:
		wantUnknown(t, err)
		if !strings.Contains(err.Error(), "cut off by Close") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the call goes on")
	}
	if _, err := caught.deliver(); err != nil { // and closes the connection
		t.Error(err)
	}
}
