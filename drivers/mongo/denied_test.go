package mongo

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A missing privilege is denied. A release may be applied before the read that is denied, so its outcome
// is unknown then.
func TestDenied(t *testing.T) {
	t.Parallel()
	l := newVictim(t, nil)
	lease := acquire(t, l.Locker, longRequest("held", "holder"))
	defer l.spare(t)
	l.fail(t, "alwaysOn", list{"findAndModify", "find", "update"}, field("errorCode", codeUnauthorized))
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
	l.fail(t, "alwaysOn", list{"find"}, field("errorCode", codeUnauthorized))
	if err := l.Release(bounded(t), lease); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("Release: %v", err)
	}
	l.spare(t)
	if err := l.Release(bounded(t), lease); err != nil {
		t.Errorf("the release again: %v", err)
	}
}

// A release that is denied when it is repeated may have been applied the first time.
func TestDeniedRepeatOfARelease(t *testing.T) {
	t.Parallel()
	l, failing := newVictimServer(t), false
	l.open(t, &event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if failing && e.CommandName == "findAndModify" {
			failing = false
			l.fail(t, docOf("times", 1), list{"findAndModify"}, field("errorCode", codeUnauthorized))
		}
	}})
	lease := acquire(t, l.Locker, longRequest("job", "holder"))
	lease.Contended = true
	failing = true
	l.fail(t, docOf("times", 1), list{"findAndModify"}, field("closeConnection", true))
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
