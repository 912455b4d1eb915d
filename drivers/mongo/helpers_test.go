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
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
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
	opts = append([]Option{WithLogger(discard)}, opts...)
	l, err := New(bounded(t), coll, opts...)
	for tries := 1; tries < 3 && errors.Is(err, context.DeadlineExceeded); tries++ {
		l, err = New(bounded(t), coll, opts...) // a busy machine was slower than the limit of a command
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	return l
}

func newBenchLocker(b *testing.B, coll *mongo.Collection) *Locker {
	b.Helper()
	l, err := New(b.Context(), coll)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.WithoutCancel(b.Context())) })
	return l
}

// through is a collection by another client.
func through(client *mongo.Client, coll *mongo.Collection) *mongo.Collection {
	return client.Database(coll.Database().Name()).Collection(coll.Name())
}

// loggedCollection is a collection of a client of its own, with the log of that client's commands.
func loggedCollection(t *testing.T) (*mongo.Collection, *commandLog) {
	t.Helper()
	log := &commandLog{}
	return mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()))), log
}

// victim is a Locker on a server of its own, which fails commands of the victim's client alone if the test says so.
type victim struct {
	*Locker
	rs      *mongotest.ReplicaSet
	control *mongo.Client
	base    *mongo.Collection // by control
}

func newVictim(t *testing.T, monitor *event.CommandMonitor) *victim {
	t.Helper()
	v := newVictimServer(t)
	v.open(t, monitor)
	return v
}

// newVictimServer returns a victim without its Locker.
func newVictimServer(t *testing.T) *victim {
	t.Helper()
	v := &victim{rs: mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})}
	v.control = mongotest.Connect(t, v.rs.URI())
	v.base = mongotest.CollectionOf(t, v.control)
	return v
}

func (v *victim) open(t *testing.T, monitor *event.CommandMonitor) {
	t.Helper()
	client := mongotest.Connect(t, v.rs.URI(), options.Client().SetAppName("victim").SetMonitor(monitor))
	v.Locker = newTestLocker(t, through(client, v.base))
}

// fail makes the server fail these commands of the victim. See setFailPoint.
func (v *victim) fail(t *testing.T, mode any, commands list, how ...bson.E) {
	t.Helper()
	setFailPoint(t, v.control, mode, append([]bson.E{field("appName", "victim"), field("failCommands", commands)}, how...)...)
}

// spare ends that.
func (v *victim) spare(t *testing.T) {
	t.Helper()
	setFailPoint(t, v.control, "off", field("errorCode", codeBadValue))
}

func closeLocker(t *testing.T, l driver.Locker) {
	t.Helper()
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// me is the waiter of the tests' requests. Each Locker has its own.
const me = driver.WaiterID("waiter")

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner of " + id, TTL: 30 * time.Second, Waiter: me}
}

func acquire(t *testing.T, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// grantRevision is the revision of the data when the lease was granted.
func grantRevision(l driver.Lease) driver.DataRevision { return driver.DataRevision{Token: l.Token} }

func wantHeld(t *testing.T, l *Locker, req driver.Request) driver.Record {
	t.Helper()
	_, err := l.TryAcquire(bounded(t), req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("acquire: got %v, want held", err)
	}
	return held.Record
}

func storedDocument(t *testing.T, coll *mongo.Collection, name string) bson.Raw {
	t.Helper()
	raw, err := coll.FindOne(bounded(t), docOf(fieldName, name)).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// overwrite sets fields of a stored document without the driver.
func overwrite(t *testing.T, coll *mongo.Collection, name string, fields ...bson.E) {
	t.Helper()
	if _, err := coll.UpdateOne(bounded(t), docOf(fieldName, name), setFields(fields...)); err != nil {
		t.Fatal(err)
	}
}

// setFailPoint makes the server fail commands as data says, in the mode "off" or
// {times: n} or {skip: n}. A server has one such fail point.
func setFailPoint(t *testing.T, client *mongo.Client, mode any, data ...bson.E) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
	defer cancel()
	if err := client.Database("admin").RunCommand(ctx, doc{
		field("configureFailPoint", "failCommand"), field("mode", mode), field("data", doc(data)),
	}).Err(); err != nil {
		t.Fatal(err)
	}
}

// sendHint leaves a hint, and returns why it could not.
func sendHint(t *testing.T, l *Locker, name, waiter string, position int) (failed error) {
	t.Helper()
	l.hints.send(bounded(t), []hint{{name, waiter, position}}, func(_ []hint, err error) { failed = err })
	return failed
}

// commandLog is a command monitor that records commands.
type commandLog struct {
	mu       sync.Mutex
	commands []bson.Raw
}

func (c *commandLog) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.commands = append(c.commands, append(bson.Raw{}, e.Command...))
	}}
}

// take returns the commands since the last call.
func (c *commandLog) take() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.commands
	c.commands = nil
	return seen
}

// commandNames returns the names of commands.
func commandNames(commands []bson.Raw) []string {
	var out []string
	for _, c := range commands {
		out = append(out, firstField(c))
	}
	return out
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }

// firstField is the name of a command.
func firstField(key bson.Raw) string {
	first, err := key.IndexErr(0)
	if err != nil {
		return ""
	}
	return first.Key()
}
