package mongo

import (
	"testing"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The hints for waiters that read none are bounded, too.
func TestHintsForWaitersThatReadNoneAreBounded(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	waiter := newLockerID()
	for range 2 {
		if err := sendHint(t, l, "job", waiter, 1); err != nil {
			t.Fatal(err)
		}
	}
	specs, err := l.hints.coll.Database().ListCollectionSpecifications(bounded(t), docOf("name", l.hints.collectionOf(waiter).Name()))
	if err != nil || len(specs) != 1 {
		t.Fatalf("%d collections, %v", len(specs), err)
	}
	if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); !capped {
		t.Errorf("the collection is not capped: %v", specs[0].Options)
	}
}
