package mongo

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A document that is no lock's is not removed, even if it has the name of the probe.
func TestRemoveProbeKeepsForeignDocuments(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	token := field(fieldToken, int64(1))
	for what, fields := range map[string]doc{
		"foreign":        {field("anything", 1)},
		"of tomorrow":    {field(fieldVersion, schemaVersion+1), token},
		"without token":  {field(fieldVersion, schemaVersion)},
		"token a number": {field(fieldVersion, schemaVersion), field(fieldToken, 1.0)},
	} {
		if _, err := coll.InsertOne(bounded(t), append(doc{field(fieldName, what)}, fields...)); err != nil {
			t.Fatal(err)
		}
		if err := l.RemoveProbe(bounded(t), what); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		storedDocument(t, coll, what)
	}
	mustRelease(t, l, acquire(t, l, request("probe", "a")))
	if err := l.RemoveProbe(bounded(t), "probe"); err != nil {
		t.Fatal(err)
	}
	if err := coll.FindOne(bounded(t), docOf(fieldName, "probe")).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("the probe is still there, %v", err)
	}
}

// A record whose token is ahead of the server's clock is kept: the next token would be lower.
func TestRemoveProbeKeepsATokenAhead(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, request("probe", "a"))
	mustRelease(t, l, lease)
	ahead := int64(lease.Token) + time.Hour.Milliseconds()
	overwrite(t, coll, "probe", field(fieldToken, ahead))
	if err := l.RemoveProbe(bounded(t), "probe"); err != nil {
		t.Error(err)
	}
	if next := acquire(t, l, request("probe", "b")); next.Token != uint64(ahead)+1 {
		t.Errorf("the next token is %d after %d", next.Token, ahead)
	}
}

// Check does not change a Locker that is in use, whatever the server has become.
func TestCheckDoesNotChangeTheLocker(t *testing.T) {
	t.Parallel()
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t)))
	l := newTestLocker(t, coll)
	l.standalone = false // as if it had been a replica set when the Locker was made
	before := l.linearizable
	found := false
	if err := l.Check(bounded(t), func(f driver.Finding) {
		found = found || f.Subject == subjectServer &&
			f.Level == driver.LevelDoubtful
	}); err != nil {
		t.Fatal(err)
	}
	if l.standalone || l.linearizable != before || !found {
		t.Errorf("changed %v, reported %v", l.standalone, found)
	}
	examining, err := driver.OpenForCheck(bounded(t), urlOf(mongotest.Standalone(t), coll))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = examining.Close(context.WithoutCancel(t.Context())) })
	if err := examining.Capabilities().Checker.Check(bounded(t), func(driver.Finding) {}); err != nil {
		t.Error(err)
	}
	if e, ok := examining.(*Locker); !ok || !e.standalone {
		t.Error("a Locker for examining does not know that the server is a standalone")
	}
}
