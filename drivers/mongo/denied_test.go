package mongo

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A missing privilege is denied. A release may be applied before the read that is denied, so its outcome
// is unknown then.
func TestDenied(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	control := mongotest.Connect(t, rs.URI())
	base := mongotest.CollectionOf(t, control)
	client := mongotest.Connect(t, rs.URI(), options.Client().SetAppName("denied"))
	l := newTestLocker(t, client.Database(base.Database().Name()).Collection(base.Name()))
	lease := acquire(t, l, longRequest("held", "holder"))
	deny := func(commands ...any) {
		setFailPoint(t, control, "alwaysOn", field("appName", "denied"), field("failCommands", list(commands)),
			field("errorCode", codeUnauthorized))
	}
	defer setFailPoint(t, control, "off", field("errorCode", codeUnauthorized))
	deny("findAndModify", "find", "update")
	if _, err := l.TryAcquire(bounded(t), longRequest("job", "waiter")); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("TryAcquire: %v", err)
	}
	if _, err := l.Inspect(bounded(t), "job"); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("Inspect: %v", err)
	}
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
	for _, lease.Contended = range []bool{false, true} {
		if err := l.Release(bounded(t), lease); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("Release: %v", err)
		}
	}
	deny("find")
	if err := l.Release(bounded(t), lease); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("Release: %v", err)
	}
	setFailPoint(t, control, "off", field("errorCode", codeUnauthorized))
	if err := l.Release(bounded(t), lease); err != nil {
		t.Errorf("the release again: %v", err)
	}
}

// A release that is denied when it is repeated may have been applied the first time.
func TestDeniedRepeatOfARelease(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	control := mongotest.Connect(t, rs.URI())
	base := mongotest.CollectionOf(t, control)
	failing := false
	client := mongotest.Connect(t, rs.URI(), options.Client().SetAppName("denied").SetMonitor(&event.CommandMonitor{
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			if failing && e.CommandName == "findAndModify" {
				failing = false
				setFailPoint(t, control, docOf("times", 1), field("appName", "denied"), field("failCommands", list{"findAndModify"}),
					field("errorCode", codeUnauthorized))
			}
		},
	}))
	l := newTestLocker(t, client.Database(base.Database().Name()).Collection(base.Name()))
	lease := acquire(t, l, longRequest("job", "holder"))
	lease.Contended = true
	failing = true
	setFailPoint(t, control, docOf("times", 1), field("appName", "denied"), field("failCommands", list{"findAndModify"}),
		field("closeConnection", true))
	if err := l.Release(bounded(t), lease); err == nil || driver.OutcomeKnown(err) || failing {
		t.Errorf("%v; the second one was denied: %v", err, !failing)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Errorf("the release again: %v", err)
	}
}

// A document that is not a lock's record, or is damaged, matches ErrDamaged.
func TestDamagedRecordIsLasting(t *testing.T) {
	if err := error(&badRecordError{name: "n", problem: "x"}); !errors.Is(err, driver.ErrDamaged) || !driver.OutcomeKnown(err) {
		t.Errorf("%v", err)
	}
}

// A command can grant the lock although its record has a fault that only the reply shows. Then the outcome
// is not certain, so the caller releases what it may hold. A record without the request's ID granted nothing.
func TestGrantOfADamagedRecordIsInDoubt(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, longRequest("job", "holder"))
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	overwrite(t, coll, "job", field(fieldReserve, int64(1)<<40))
	req := longRequest("job", "next")
	if _, err := l.TryAcquire(bounded(t), req); !errors.Is(err, driver.ErrDamaged) || !driver.OutcomeKnown(err) {
		t.Errorf("a request that changed nothing: %v", err)
	}
	overwrite(t, coll, "job", field(fieldReserve, int64(emptied-1)))
	_, err := l.TryAcquire(bounded(t), req)
	if holder := storedDocument(t, coll, "job").Lookup(fieldLeaseID).StringValue(); holder != "next" {
		t.Fatalf("the record has the lease %q", holder)
	}
	var bad *badRecordError
	if !errors.As(err, &bad) || driver.OutcomeKnown(err) {
		t.Errorf("a request that took the lock: %v", err)
	}
}
