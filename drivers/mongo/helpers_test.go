package mongo

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

var discard = slog.New(slog.DiscardHandler)

// bounded is the test's context with a limit that ends it before go test does.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newTestLocker(t *testing.T, coll *mongo.Collection, opts ...Option) *Locker {
	t.Helper()
	l, err := New(bounded(t), coll, append([]Option{WithLogger(discard)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	return l
}

func closeLocker(t *testing.T, l driver.Locker) {
	t.Helper()
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner of " + id, TTL: 30 * time.Second}
}

func acquire(t *testing.T, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// granted is the revision of the data when the lease was granted.
func granted(l driver.Lease) driver.DataRevision { return driver.DataRevision{Token: l.Token} }

func wantHeld(t *testing.T, l *Locker, req driver.Request) driver.Record {
	t.Helper()
	_, err := l.TryAcquire(bounded(t), req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("acquire: got %v, want held", err)
	}
	return held.Record
}

func stored(t *testing.T, coll *mongo.Collection, name string) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(bounded(t), is(fieldName, name)).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// change sets fields of a stored document behind the driver's back.
func change(t *testing.T, coll *mongo.Collection, name string, fields ...bson.E) {
	t.Helper()
	if _, err := coll.UpdateOne(bounded(t), is(fieldName, name), set(fields...)); err != nil {
		t.Fatal(err)
	}
}

// commandLog is a command monitor that remembers.
type commandLog struct {
	mu   sync.Mutex
	seen []bson.Raw
}

func (c *commandLog) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, append(bson.Raw{}, e.Command...))
	}}
}

// take returns the commands since the last call.
func (c *commandLog) take() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// names returns the names of commands.
func names(commands []bson.Raw) []string {
	var out []string
	for _, c := range commands {
		out = append(out, leadingField(c))
	}
	return out
}

// logged is a logger that keeps what it is told.
func logged() (*slog.Logger, *lines) {
	out := &lines{}
	return slog.New(slog.NewTextHandler(out, nil)), out
}

type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}
