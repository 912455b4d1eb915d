package mongotest

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { Main(m) }

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func insert(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	if _, err := coll.InsertOne(within(t), bson.D{{Key: "a", Value: 1}}); err != nil {
		t.Fatal(err)
	}
}

func TestKillPauseStepDown(t *testing.T) {
	serverprocess.Long(t, "tests what other tests rely on")
	ctx := within(t)
	rs := StartReplicaSet(t, Options{})
	coll := CollectionOf(t, Connect(t, rs.URI()))
	insert(t, coll)

	killed, err := rs.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := rs.Kill(killed); err != nil {
		t.Fatal(err)
	}
	if err := rs.Pause(killed); err == nil {
		t.Error("a killed member was paused")
	}
	next, err := rs.Primary(ctx)
	if err != nil || next == killed {
		t.Fatalf("after the kill of %d: primary %d, %v", killed, next, err)
	}
	if err := rs.Restart(ctx, killed); err != nil {
		t.Fatal(err)
	}
	if err := rs.Pause(killed); err != nil {
		t.Fatal(err)
	}
	if err := rs.Resume(killed); err != nil {
		t.Fatal(err)
	}
	insert(t, coll)
	if err := rs.StepDown(ctx); err != nil {
		t.Fatal(err)
	}
	if after, err := rs.Primary(ctx); err != nil || after == next {
		t.Errorf("after %d stepped down: primary %d, %v", next, after, err)
	}
}
