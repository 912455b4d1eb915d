package mongo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// past writes the history of a lock as "owner end", the latest first.
func past(t *testing.T, l *Locker, name string) string {
	t.Helper()
	r, err := l.Inspect(bounded(t), name)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range r.History {
		all = append(all, strings.TrimPrefix(one.Owner, "owner of ")+" "+one.End.String())
	}
	return strings.Join(all, ", ")
}

func wantPast(t *testing.T, l *Locker, when, want string) {
	t.Helper()
	if got := past(t, l, "n"); got != want {
		t.Errorf("%s the history is %q, want %q", when, got, want)
	}
}

func mustRelease(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
}

// The clock of the member that ended a tenure was ahead of that of the next grant. The next tenure's end
// is its own.
func TestEndAfterTheNextGrant(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, request("n", "a"))
	if err := l.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	ahead := nowPlus(time.Hour.Milliseconds())
	overwrite(t, coll, "n", field(fieldReleasedAt, ahead), field(fieldFreedAt, ahead), field(fieldBrokenAt, ahead))
	lease := acquire(t, l, request("n", "b"))
	wantPast(t, l, "after a grant", "a freed")
	mustRelease(t, l, lease)
	wantPast(t, l, "after a release", "b released, a freed")
}

// The clock of the member that ended a tenure was behind that of its grant.
func TestEndBeforeItsGrant(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ahead := field(fieldAcquiredAt, nowPlus(time.Hour.Milliseconds()))
	lease := acquire(t, l, request("n", "a"))
	overwrite(t, coll, "n", ahead)
	mustRelease(t, l, lease)
	wantPast(t, l, "after a release", "a released")
	acquire(t, l, request("n", "b"))
	overwrite(t, coll, "n", ahead)
	if err := l.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	wantPast(t, l, "after a BreakNow", "b freed, a released")
	r, err := l.Inspect(bounded(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range r.History {
		if one.Until.Before(one.From) {
			t.Errorf("the tenure of %s ended at %v, before it began at %v", one.Owner, one.Until, one.From)
		}
	}
}

// A damaged history is no error, and the next grants replace it.
func TestDamagedHistory(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	mustRelease(t, l, acquire(t, l, request("n", "a")))
	good := doc{field(pastOwner, "good"), field(pastToken, int64(5)), field(pastReleased, time.Now()), field(pastHeld, false)}
	for what, damaged := range map[string]any{
		"text": "x", "number": 5, "document": doc{field("0", good)}, "null": nil, "scalars": list{1, "x", nil, list{}},
		"no token": list{docOf(pastOwner, "x")}, "token as text": list{docOf(pastToken, "5")},
		"negative token":    list{docOf(pastToken, int64(-1))},
		"owner as number":   list{doc{field(pastToken, int64(5)), field(pastOwner, 5)}},
		"date out of range": list{doc{field(pastToken, int64(5)), field(pastAcquired, bson.DateTime(1<<60))}},
	} {
		overwrite(t, coll, "n", field(fieldHistory, literal(damaged)), field(fieldReleasedAt, "x"), field(fieldBrokenAt, 5))
		if got := past(t, l, "n"); got != "a unknown" {
			t.Errorf("%s: the history is %q", what, got)
		}
	}
	overwrite(t, coll, "n", field(fieldHistory, literal(list{good, 5, docOf(pastToken, "x")})))
	wantPast(t, l, "with one good tenure", "a unknown, good released")
	overwrite(t, coll, "n", field(fieldHistory, "x"))
	lease := acquire(t, l, request("n", "b"))
	wantPast(t, l, "after a grant", "a unknown")
	mustRelease(t, l, lease)
	wantPast(t, l, "after a release", "b released, a unknown")
}

// The number of past holders is that of the last grant. The stored history has no lease ID.
func TestHistoryLength(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for n, want := range map[int]string{0: "", 1: "3 released", 2: "3 released, 2 released"} {
		l := newTestLocker(t, coll, WithHistory(n))
		if got := l.Info().History; got != n {
			t.Errorf("the driver says that it keeps %d, want %d", got, n)
		}
		for i := range 4 {
			mustRelease(t, l, acquire(t, l, request("n", fmt.Sprint(i))))
		}
		wantPast(t, l, "with a bound", want)
		stored, _ := storedDocument(t, coll, "n").Lookup(fieldHistory).Array().Values()
		if len(stored) != n {
			t.Errorf("%d tenures are stored, want %d", len(stored), n)
		}
	}
	l := newTestLocker(t, coll)
	for range 3 {
		mustRelease(t, l, acquire(t, l, request("secret", "5f0c2f3e")))
	}
	stored := storedDocument(t, coll, "secret").String()
	if strings.Count(stored, "5f0c2f3e") != strings.Count(stored, "owner of 5f0c2f3e") {
		t.Errorf("a lease ID is in %s", stored)
	}
	for _, n := range []int{-1, driver.MaxHistory + 1} {
		if _, err := New(bounded(t), coll, WithHistory(n)); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "history") {
			t.Errorf("WithHistory(%d): %v", n, err)
		}
	}
}

// Reads of many records leave the history out.
func TestHistoryIsOnlyInspected(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	mustRelease(t, l, acquire(t, l, request("n", "a")))
	acquire(t, l, request("n", "b"))
	many, _ := l.InspectBatch(bounded(t), "", []string{"n"})
	for r, err := range l.List(bounded(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, r)
	}
	for _, r := range append(many, wantHeld(t, l, request("n", "c"))) {
		if r.History != nil {
			t.Errorf("got %+v", r.History)
		}
	}
	before := time.Now()
	if r, err := l.Inspect(bounded(t), "n"); err != nil || r.ReadAt.Sub(before).Abs() > 10*time.Second {
		t.Errorf("read at %v, error %v", r.ReadAt, err)
	}
}
