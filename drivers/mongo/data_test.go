package mongo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A write of data whose caller has given up and that arrives late changes nothing after a later write has
// succeeded, and no update is based on older data.
func TestLateDataWrite(t *testing.T) {
	t.Parallel()
	l, dialer := newDelayedLocker(t)
	client, err := holdfast.New(l, holdfast.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	m, err := leases.New(client)
	if err != nil {
		t.Fatal(err)
	}
	locktest.ShutDownAtEnd(t, client)
	for what, c := range map[string]struct {
		during  bool // delivered between the read and the write of the second update
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
		wantUnknown(t, dialer.callDelayed(t, func(ctx context.Context) error {
			return h.UpdateData(ctx, func([]byte) ([]byte, error) { return []byte("old "), nil })
		}, "update\x00", name, "old "))
		late := c.during
		err := h.UpdateData(ctx, func(old []byte) ([]byte, error) {
			if late {
				late = false
				if n := dialer.deliver(t); n != c.matched {
					t.Errorf("%s: the late write matched %d documents", what, n)
				}
			}
			return append(old, "new"...), nil
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !c.during {
			if n := dialer.deliver(t); n != c.matched {
				t.Errorf("%s: the late write matched %d documents", what, n)
			}
		}
		if data, err := h.Data(ctx); err != nil || string(data) != c.want {
			t.Errorf("%s: the data are %q, want %q; %v", what, data, c.want, err)
		}
		if c.during {
			continue
		}
		wantUnknown(t, dialer.callDelayed(t, func(ctx context.Context) error {
			return h.WriteData(ctx, []byte("late"))
		}, "update\x00", name, "late"))
		if err := h.WriteData(ctx, []byte("last")); err != nil {
			t.Error(err)
		}
		if n := dialer.deliver(t); n != 0 {
			t.Errorf("the late write matched %d documents", n)
		}
		if data, err := h.Data(ctx); err != nil || string(data) != "last" {
			t.Errorf("the data are %q; %v", data, err)
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
	overwrite(t, coll, "n", field(fieldExpiresAt, time.Now().Add(-time.Second)))
	if err := l.WriteData(ctx, lease, []byte("late"), grantRevision(lease)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if _, err := l.Renew(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if data, at, err := l.ReadData(ctx, "n"); data != nil || at != grantRevision(lease) || err != nil {
		t.Errorf("%q, %+v, %v", data, at, err)
	}
	if err := l.WriteData(ctx, lease, []byte("in time"), grantRevision(lease)); err != nil {
		t.Error(err)
	}
}

// A damaged count of writes affects operations on the data only.
func TestDamagedCountOfWrites(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	for what, count := range map[string]any{"a text": literal("1"), "below zero": -1} {
		lease := acquire(t, l, request("n", "of "+what))
		overwrite(t, coll, "n", field(fieldWrites, count))
		_, inspectErr := l.Inspect(ctx, "n")
		_, _, readErr := l.ReadData(ctx, "n")
		for op, err := range map[string]error{
			"inspect": inspectErr, "read data": readErr, "write data": l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)),
		} {
			var bad *badRecordError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), fieldWrites) {
				t.Errorf("%s, %s: got %v, want an error that names the field", what, op, err)
			}
		}
		if err := errors.Join(errOf(l.Renew(ctx, lease)), l.Release(ctx, lease)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		lease = acquire(t, l, request("n", "after "+what)) // a new holder starts the count again
		if err := errors.Join(l.WriteData(ctx, lease, nil, grantRevision(lease)), l.Release(ctx, lease)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
