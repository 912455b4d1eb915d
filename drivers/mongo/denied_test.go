package mongo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// A guard's error names the collection on which the privilege is missing.
func TestGuardNamesTheDeniedCollection(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	db := coll.Database()
	hold := testHold{lease: acquire(t, newTestLocker(t, coll), longRequest("job", "holder")), ctx: bounded(t)}
	for user, test := range map[string]struct {
		collection string
		actions    list
		lacks      string
	}{
		"locks":  {coll.Name(), list{"find"}, FencesCollection},
		"fences": {FencesCollection, list{"find", "insert", "update"}, coll.Name()},
	} {
		resource := doc{field("db", db.Name()), field("collection", test.collection)}
		for _, command := range []doc{
			{field("createRole", user), field("roles", list{}),
				field("privileges", list{doc{field("resource", resource), field("actions", test.actions)}})},
			{field("createUser", user), field("pwd", "pw-"+user), field("roles", list{user})},
		} {
			if err := db.RunCommand(bounded(t), command).Err(); err != nil {
				t.Fatal(err)
			}
		}
		client := mongotest.Connect(t, rs.URI(), options.Client().
			SetAuth(options.Credential{AuthSource: db.Name(), Username: user, Password: "pw-" + user}))
		g := newGuard(through(client, coll), client.Database(db.Name()), 10*time.Second)
		err := g.Do(bounded(t), hold, func(context.Context) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "lacks a privilege on "+db.Name()+"."+test.lacks+": ") {
			t.Errorf("a user who may only use %s: %v, want an error about %s", test.collection, err, test.lacks)
		}
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
