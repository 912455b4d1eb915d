package mongo

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// wantHints checks what a check says of the hints, and that it makes no collection.
func wantHints(t *testing.T, l *Locker, level driver.Level, want string) driver.Finding {
	t.Helper()
	names := func() string {
		all, err := l.Database().ListCollectionNames(bounded(t), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
	before := names()
	found := findings(t, l, subjectHints)
	if len(found) != 1 || found[0].Level != level || !strings.Contains(found[0].Detail, want) {
		t.Errorf("the check found %v, want %v and %q", found, level, want)
	}
	if after := names(); after != before {
		t.Errorf("the check has made collections: %s, before %s", after, before)
	}
	if len(found) == 0 {
		return driver.Finding{}
	}
	return found[0]
}

// A server that reads no collection without an index cannot serve hints. The check tries that, whether there are hints already
// or not, and its remedy helps.
func TestCheckTriesToFollowHints(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	client := mongotest.Connect(t, rs.URI())
	base := mongotest.CollectionOf(t, client)
	forbid := func() {
		t.Helper()
		if err := client.Database("admin").RunCommand(bounded(t), doc{field("setParameter", 1), field("notablescan", true)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(bounded(t), urlOf(rs.URI(), base), WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	wantHints(t, l, driver.LevelOK, "made when needed")
	forbid()
	runAdvised(t, base, wantHints(t, l, driver.LevelDoubtful, "notablescan").Command)
	wantHints(t, l, driver.LevelOK, "made when needed")
	if err := l.hints.create(bounded(t)); err != nil {
		t.Fatal(err)
	}
	wantHints(t, l, driver.LevelOK, "1 of 16")
	forbid()
	_, err = l.hints.open(bounded(t))
	if !isPermanent(err) {
		t.Errorf("following hints: %v, want a permanent failure", err)
	}
	runAdvised(t, base, wantHints(t, l, driver.LevelDoubtful, "notablescan").Command)
	wantHints(t, l, driver.LevelOK, "1 of 16")
}

// A collection whose name has no room for the suffix of the hints has none. A check says so.
func TestCheckOfLongNames(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	longest := maxNamespace - len(base.Database().Name()) - len(".") - len(hintsSuffix+"0")
	for length, level := range map[int]driver.Level{longest: driver.LevelOK, longest + 1: driver.LevelDoubtful} {
		coll := base.Database().Collection(strings.Repeat("c", length))
		l := newTestLocker(t, coll)
		want := "made when needed"
		if level != driver.LevelOK {
			want = "too long"
		}
		wantHints(t, l, level, want)
		if err := l.hints.create(bounded(t)); (err == nil) != (level == driver.LevelOK) || err != nil && !isPermanent(err) {
			t.Errorf("with %d bytes the collection of hints: %v", length, err)
		}
	}
}

// Where nothing exists yet, nothing can be tried without changing something.
func TestCheckOfHintsThatCannotBeTried(t *testing.T) {
	t.Parallel()
	wantHints(t, forCheck(t, mongotest.Collection(t)), driver.LevelUnchecked, "not tried")
}

// A failure that stays until a person changes something is not repeated every few seconds.
func TestPermanentFailuresOfHints(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{codeUnauthorized, codeInvalidNamespace, codeNoQueryPlan} {
		if got := leastBackoff(mongo.CommandError{Code: code}); got != retryPermanent {
			t.Errorf("code %d is repeated after %v, want %v", code, got, retryPermanent)
		}
	}
}
