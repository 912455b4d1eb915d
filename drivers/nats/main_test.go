package nats

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// openAt makes a Locker that is closed at the end of the test.
func openAt(t *testing.T, rawURL string, opts ...Option) *Locker {
	t.Helper()
	l, err := Open(t.Context(), rawURL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// admin is a connection of the user who may do everything. It survives crashes of the server.
func admin(t *testing.T, rawURL string) *natsgo.Conn {
	t.Helper()
	o := natsgo.GetDefaultOptions()
	closed := make(chan struct{})
	o.Servers, o.MaxReconnect, o.ReconnectWait = strings.Split(rawURL, ","), -1, 50*time.Millisecond
	o.ClosedCB = func(*natsgo.Conn) { close(closed) }
	conn, err := o.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); <-closed })
	return conn
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner " + id, TTL: time.Minute}
}

// loggingTo logs to a buffer, of one goroutine at a time.
func loggingTo(b *bytes.Buffer) Option { return WithLogger(slog.New(slog.NewTextHandler(b, nil))) }
