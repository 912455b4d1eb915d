package mongo

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The hints for waiters that read none are bounded, too.
func TestHintsForWaitersThatReadNoneAreBounded(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	waiter := newLockerID()
	if err := sendHint(t, l, "job", waiter, 1); err != nil {
		t.Fatal(err)
	}
	specs, err := l.hints.coll.Database().ListCollectionSpecifications(bounded(t), docOf("name", l.hints.collectionOf(waiter).Name()))
	if err != nil || len(specs) != 1 {
		t.Fatalf("%d collections, %v", len(specs), err)
	}
	if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); !capped {
		t.Errorf("the collection is not capped: %v", specs[0].Options)
	}
}

// To make a collection, even one that is there, takes longer than to look for all of them, and the waiter is kept waiting meanwhile.
func TestHintsLookForTheirCollectionsOnce(t *testing.T) {
	t.Parallel()
	var log commandLog
	l := newTestLocker(t, mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()))))
	var waiters []string
	for n := range 3 {
		waiters = append(waiters, string(rune('A'+n))+newLockerID())
		if err := createCapped(bounded(t), l.hints.collectionOf(waiters[n])); err != nil {
			t.Fatal(err)
		}
	}
	log.take()
	for _, waiter := range slices.Concat(waiters, waiters) {
		if err := sendHint(t, l, "job", waiter, 1); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"listCollections", "insert", "insert", "insert", "insert", "insert", "insert"}
	if got := commandNames(log.take()); !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}
