package mongo

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A refusal shows only what no fail-over can undo, although it has written nothing. Otherwise a waiter might
// see one revision of a holder twice, before and after a fail-over, and replace the holder while it lives.
func TestRefusalWaitsForAMajority(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	// The primary must not step down although it reaches no other member for a while.
	rs := mongotest.StartReplicaSet(t, mongotest.Options{ElectionTimeout: 20 * time.Second})
	client := mongotest.Connect(t, rs.URI())
	l := newTestLocker(t, mongotest.CollectionOf(t, client))
	acquire(t, l, request("refused", "holder"))
	primary, err := rs.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for member := range rs.PIDs() {
		if member != primary {
			if err := rs.Pause(member); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rs.Resume(member) }()
		}
	}
	onPrimary := client.Database("other").Collection("writes", options.Collection().SetWriteConcern(writeconcern.W1()))
	if _, err := onPrimary.InsertOne(bounded(t), docOf("no", "majority has it")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = l.TryAcquire(ctx, request("refused", "another"))
	wantUnknown(t, err)
	for member := range rs.PIDs() {
		if member != primary {
			if err := rs.Resume(member); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "a refusal", func() bool {
		_, err := l.TryAcquire(bounded(t), request("refused", "another"))
		return errors.Is(err, driver.ErrHeld)
	})
}
