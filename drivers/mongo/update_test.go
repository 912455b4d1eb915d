package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A deposed primary acknowledges a write that changes nothing. No write of the driver is one,
// and only a renewal looks like a renewal to a waiter.
func TestEveryWriteChangesTheRecord(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "secret a"))
	at := grantRevision(lease)
	write := func(data []byte) func() error {
		return func() error {
			err := l.WriteData(ctx, lease, data, at)
			at = at.Next()
			return err
		}
	}
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"write data", write([]byte("same"))},
		{"write the same data", write([]byte("same"))},
		{"remove the data", write(nil)},
		{"remove no data", write(nil)},
		{"break", func() error { return l.Break(ctx, "n", driver.BreakAnybody()) }},
		{"break a broken lease", func() error { return l.Break(ctx, "n", driver.BreakAnybody()) }},
	} {
		before := storedDocument(t, coll, "n")
		if err := step.call(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		after := storedDocument(t, coll, "n")
		if bytes.Equal(before, after) {
			t.Errorf("%s: the record is the same", step.name)
		}
		for _, name := range []string{fieldRenewedAt, fieldExpiresAt, fieldToken, fieldLeaseID} {
			if !before.Lookup(name).Equal(after.Lookup(name)) {
				t.Errorf("%s: %s went from %v to %v", step.name, name, before.Lookup(name), after.Lookup(name))
			}
		}
	}
	if _, err := l.Inspect(ctx, "n"); err != nil {
		t.Error(err)
	}
}

// A lease without an ID, such as the zero Lease, holds nothing.
func TestLeaseWithoutAnID(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	ctx := bounded(t)
	free := acquire(t, l, request("free", "secret a"))
	if err := l.Release(ctx, free); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, request("held", "secret b"))
	for _, name := range []string{"free", "held", "unknown"} {
		none := driver.Lease{Name: name, TTL: time.Minute}
		_, batch := l.RenewBatch(ctx, []driver.Lease{none, {Name: "other", ID: driver.NewLeaseID("secret c"), TTL: time.Minute}})
		for _, err := range []error{errOf(l.Renew(ctx, none)), l.WriteData(ctx, none, nil, grantRevision(none)), batch[0]} {
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: got %v, want lost", name, err)
			}
		}
		if err := l.Release(ctx, none); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
	}
	wantHeld(t, l, request("held", "secret d"))
}

// The server quotes a document that fails validation, with the lease ID of a holder that the
// caller does not know.
func TestRefusedWriteShowsNoLeaseID(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	const id = "5ec2e75e-c2e7-45ec-a2e7-5ec2e75ec2e7"
	acquire(t, l, driver.Request{Name: "n", ID: driver.NewLeaseID(id), Owner: "owner", TTL: time.Minute})
	if err := coll.Database().RunCommand(bounded(t), doc{{Key: "collMod", Value: coll.Name()},
		{Key: "validator", Value: docOf(fieldLeaseID, docOf("$type", "int"))}, {Key: "validationLevel", Value: "strict"}}).Err(); err != nil {
		t.Fatal(err)
	}
	_, acquireErr := l.TryAcquire(bounded(t), request("n", "secret b"))
	for _, err := range []error{l.Break(bounded(t), "n", driver.BreakAnybody()), l.BreakNow(bounded(t), "n", driver.BreakAnybody()),
		acquireErr} {
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), id) {
			t.Errorf("the holder's lease ID is in: %v", err)
		}
	}
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err == nil || !strings.Contains(err.Error(), "the validator of") {
		t.Errorf("break: got %v, want who refuses it", err)
	}
}

// recordHider hides a record from the next updates of a Locker by putting another holder's ID
// in it, and restores it when the Locker reads.
type recordHider struct {
	t              *testing.T
	coll           *mongo.Collection // through another client than the Locker's
	name, leaseID  string
	hides, updates int // how often it will be hidden; how many updates were sent
	hidden         bool
}

// lockerWithHiddenRecord returns a Locker that holds two leases. The record of the first will be hidden once.
func lockerWithHiddenRecord(t *testing.T) (*recordHider, *Locker, []driver.Lease) {
	t.Helper()
	m := &recordHider{t: t, coll: mongotest.Collection(t), name: "n", leaseID: "secret a"}
	l := m.locker()
	leases := []driver.Lease{acquire(t, l, request("n", "secret a")), acquire(t, l, request("m", "secret b"))}
	m.hides = 1
	return m, l, leases
}

func (m *recordHider) setLeaseID(id string) {
	// The context of a command may have a session of the Locker's client.
	if _, err := m.coll.UpdateOne(bounded(m.t), docOf(fieldName, m.name), setFields(field(fieldLeaseID, literal(id)))); err != nil {
		m.t.Error(err)
	}
}

func (m *recordHider) started(ctx context.Context, e *event.CommandStartedEvent) {
	switch {
	case e.CommandName == "update", e.CommandName == "findAndModify":
		m.updates++
		if m.hidden = m.hides > 0; m.hidden {
			m.hides--
			m.setLeaseID("another's")
		}
	case e.CommandName == "find" && m.hidden:
		m.setLeaseID(m.leaseID)
	}
}

// locker returns a Locker from which the record is hidden.
func (m *recordHider) locker() *Locker {
	m.t.Helper()
	client := mongotest.Connect(m.t, mongotest.URI(m.t), options.Client().SetMonitor(&event.CommandMonitor{Started: m.started}))
	return newTestLocker(m.t, client.Database(m.coll.Database().Name()).Collection(m.coll.Name()))
}

// A write that does not match, although the lease's own record is there a moment later, is
// repeated, and finally its outcome is unknown. Neither ErrLost nor a successful release would
// be right.
func TestUpdateWithInconsistentAnswers(t *testing.T) {
	t.Parallel()
	m := &recordHider{t: t, coll: mongotest.Collection(t), name: "n", leaseID: "secret a"}
	l := m.locker()
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "secret a"))
	for what, call := range map[string]func() error{
		"renew":      func() error { return errOf(l.Renew(ctx, lease)) },
		"write data": func() error { return l.WriteData(ctx, lease, nil, grantRevision(lease)) },
		"break":      func() error { return l.Break(ctx, "n", driver.BreakAnybody()) },
	} {
		m.hides, m.updates = 1000, 0
		wantUnknown(t, call())
		if m.updates > 5 {
			t.Errorf("%s: sent %d times", what, m.updates)
		}
		m.hides = 2
		if what == "break" {
			continue
		}
		if err := call(); err != nil || m.hides != 0 {
			t.Errorf("%s: %v, moved %d times too few", what, err, m.hides)
		}
	}
	m.hides = 1000
	wantUnknown(t, l.Release(ctx, lease))
	m.hides = 2
	if err := l.Release(ctx, lease); err != nil {
		t.Error(err)
	}
	acquire(t, l, request("n", "secret b"))
}
