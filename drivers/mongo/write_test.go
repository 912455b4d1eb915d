package mongo

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// A write that changes nothing is acknowledged by a primary that a majority has
// deposed. None of ours is, and none but a renewal looks like one to a waiter that
// watches for them.
func TestEveryWriteChangesTheRecord(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "secret a"))
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"write data", func() error { return l.WriteData(ctx, lease, []byte("same")) }},
		{"write the same data", func() error { return l.WriteData(ctx, lease, []byte("same")) }},
		{"remove the data", func() error { return l.WriteData(ctx, lease, nil) }},
		{"remove no data", func() error { return l.WriteData(ctx, lease, nil) }},
		{"break", func() error { return l.Break(ctx, "n") }},
		{"break what is broken", func() error { return l.Break(ctx, "n") }},
	} {
		before := stored(t, coll, "n")
		if err := step.call(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		after := stored(t, coll, "n")
		if bytes.Equal(before, after) {
			t.Errorf("%s: the record is the same", step.name)
		}
		for _, name := range []string{fieldRenewedAt, fieldExpiresAt, fieldToken, fieldKid} {
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
		none := holdfast.Lease{Name: name, TTL: time.Minute}
		batch := l.RenewBatch(ctx, []holdfast.Lease{none, {Name: "other", ID: holdfast.NewLeaseID("secret c"), TTL: time.Minute}})
		for _, err := range []error{l.Renew(ctx, none), l.WriteData(ctx, none, nil), batch[0]} {
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s: got %v, want lost", name, err)
			}
		}
		if err := l.Release(ctx, none); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
	}
	wantHeld(t, l, request("held", "secret d"))
}

// The server quotes a document that breaks a rule of validation, with the lease ID
// of a holder that the caller does not know.
func TestRefusedWriteShowsNoLeaseID(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	const id = "5ec2e75e-c2e7-45ec-a2e7-5ec2e75ec2e7"
	acquire(t, l, holdfast.Request{Name: "n", ID: holdfast.NewLeaseID(id), Owner: "owner", TTL: time.Minute})
	if err := coll.Database().RunCommand(bounded(t), doc{{Key: "collMod", Value: coll.Name()},
		{Key: "validator", Value: is(fieldKid, is("$type", "int"))}, {Key: "validationLevel", Value: "strict"}}).Err(); err != nil {
		t.Fatal(err)
	}
	_, acquireErr := l.TryAcquire(bounded(t), request("n", "secret b"))
	for _, err := range []error{l.Break(bounded(t), "n"), l.BreakNow(bounded(t), "n"), acquireErr} {
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), id) {
			t.Errorf("the holder's lease ID is in: %v", err)
		}
	}
	if err := l.Break(bounded(t), "n"); err == nil || !strings.Contains(err.Error(), "failed validation") {
		t.Errorf("break: got %v, want what the server says", err)
	}
}
