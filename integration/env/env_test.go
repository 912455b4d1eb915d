package env_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/integration/env"
)

func TestMain(m *testing.M) { env.Main(m) }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// lockOnce acquires and releases a lock at a URL.
func lockOnce(t *testing.T, url string) {
	t.Helper()
	ctx := within(t, time.Minute)
	client, err := holdfast.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := client.Do(ctx, "once", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestShared(t *testing.T) {
	t.Run("MongoDB", func(t *testing.T) { t.Parallel(); lockOnce(t, env.SharedMongo(t).URL(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); lockOnce(t, env.SharedPostgres(t).URL(t)) })
	t.Run("Azurite", func(t *testing.T) { t.Parallel(); lockOnce(t, env.SharedAzurite(t).FreshURL(t)) })
}

func insert(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := coll.InsertOne(ctx, bson.D{{Key: "a", Value: 1}})
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no majority write within a minute: %v", err)
		}
	}
}

func primary(t *testing.T, m *env.Mongo) int {
	t.Helper()
	found, err := m.Primary(within(t, time.Minute))
	env.Check(t, err)
	return found
}

// otherPrimary waits until a member other than old is primary.
func otherPrimary(t *testing.T, m *env.Mongo, old int) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if now := primary(t, m); now != old {
			return now
		}
	}
	t.Fatalf("member %d is still primary", old)
	return -1
}

// After each fault of the primary another member is elected, and writes continue. Then the old
// primary rejoins as a secondary.
func TestPrimaryFaults(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	coll := m.Database(t).Collection("c")
	insert(t, coll)
	for _, fault := range []struct {
		name         string
		inject, undo func(context.Context, int) error
	}{
		{"kill", m.Kill, m.Restart},
		{"pause", m.Pause, m.Resume},
		{"step down", func(ctx context.Context, _ int) error { return m.StepDown(ctx) }, nil},
		{"cut off", m.CutOff, m.Rejoin},
	} {
		t.Run(fault.name, func(t *testing.T) {
			ctx := within(t, 2*time.Minute)
			old := primary(t, m)
			start := time.Now()
			env.Check(t, fault.inject(ctx, old))
			next := otherPrimary(t, m, old)
			insert(t, coll)
			t.Logf("member %d replaced member %d; a write succeeded after %s", next, old, time.Since(start).Round(time.Millisecond))
			if fault.undo == nil {
				return
			}
			env.Check(t, fault.undo(ctx, old))
			awaitSecondary(t, m, old)
		})
	}
}

// awaitSecondary waits until a member is a secondary.
func awaitSecondary(t *testing.T, m *env.Mongo, member int) {
	t.Helper()
	client := m.Connect(t, options.Client().SetHosts(m.Hosts()[member:member+1]).SetDirect(true).
		SetReplicaSet("").SetServerSelectionTimeout(time.Second))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var hello struct{ Secondary bool }
		err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
		if err == nil && hello.Secondary {
			return
		}
	}
	t.Fatalf("member %d is not a secondary", member)
}

// A primary that is cut off from the other members still serves clients on its side, but their
// writes reach no majority.
func TestClientsOfACutOffPrimary(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	db := m.Database(t)
	insert(t, db.Collection("c"))
	old := primary(t, m)
	env.Check(t, m.CutOff(within(t, time.Minute), old))
	url := m.DirectURL(t, db.Name(), old)
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	if err := client.Ping(within(t, 20*time.Second), nil); err != nil {
		t.Fatalf("a client on its side cannot reach it: %v", err)
	}
	_, err = client.Database(db.Name()).Collection("c").InsertOne(within(t, 5*time.Second), bson.D{{Key: "a", Value: 1}})
	if err == nil {
		t.Error("a write without a majority was acknowledged")
	}
}

// now returns the time by a member's own clock, as $$NOW reads it.
func now(t *testing.T, m *env.Mongo, member int) time.Time {
	t.Helper()
	client := m.Connect(t, options.Client().SetHosts(m.Hosts()[member:member+1]).SetDirect(true).
		SetReplicaSet(""))
	cursor, err := client.Database("admin").Aggregate(within(t, time.Minute), bson.A{
		bson.D{{Key: "$documents", Value: bson.A{bson.D{}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "now", Value: "$$NOW"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []struct{ Now time.Time }
	if err := cursor.All(t.Context(), &found); err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0].Now
}

// The clock of one member moves while it runs, by any amount, in both directions, and the set
// keeps working.
func TestMemberClock(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{FakeClock: true})
	coll := m.Database(t).Collection("c")
	insert(t, coll)
	moved := primary(t, m)
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 1500 * time.Millisecond, 0} {
		env.Check(t, m.SetClock(within(t, time.Minute), moved, offset))
		for member := range m.Hosts() {
			want := time.Duration(0)
			if member == moved {
				want = offset
			}
			start := time.Now()
			ahead := now(t, m, member).Sub(start)
			if took := time.Since(start); ahead < want-time.Second || ahead > want+took+time.Second {
				t.Errorf("member %d is ahead by %s, want %s", member, ahead, want)
			}
		}
		insert(t, coll)
	}
	if err := m.SetClock(within(t, time.Minute), moved, time.Hour); err != nil {
		t.Fatal(err)
	}
	env.Check(t, m.Kill(t.Context(), moved))
	otherPrimary(t, m, moved)
	env.Check(t, m.Restart(within(t, time.Minute), moved))
	awaitSecondary(t, m, moved)
	if ahead := time.Until(now(t, m, moved)); ahead < 59*time.Minute {
		t.Errorf("after a restart the member is ahead by %s", ahead)
	}
}

func TestAzuriteKilledAndRestarted(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"state kept": true, "state lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := env.StartAzurite(t, keep)
			c := a.Container(t)
			ctx := within(t, 5*time.Minute)
			upload(t, c)
			env.Check(t, a.Stop(ctx))
			env.Check(t, a.Restart(ctx))
			expectBlob(t, c, keep)
			if !keep {
				if _, err := c.Create(ctx, nil); err != nil {
					t.Fatal(err)
				}
				upload(t, c)
			}
			env.Check(t, a.Kill(ctx))
			if _, err := c.GetProperties(within(t, 2*time.Second), nil); err == nil {
				t.Error("the killed service answers")
			}
			env.Check(t, a.Restart(ctx))
			expectBlob(t, c, keep)
		})
	}
}

func upload(t *testing.T, c *container.Client) {
	t.Helper()
	if _, err := c.NewBlockBlobClient("b").Upload(within(t, time.Minute), nil, nil); err != nil {
		t.Fatal(err)
	}
}

func expectBlob(t *testing.T, c *container.Client, want bool) {
	t.Helper()
	_, err := c.NewBlobClient("b").GetProperties(within(t, time.Minute), nil)
	if (err == nil) != want || err != nil && !bloberror.HasCode(err, bloberror.ContainerNotFound, bloberror.BlobNotFound, "") {
		t.Errorf("the blob exists: %v (%v), want %v", err == nil, err, want)
	}
}

func TestAzuritePaused(t *testing.T) {
	t.Parallel()
	a := env.StartAzurite(t, false)
	c := a.Client(t, a.Fresh(t), func(rt http.RoundTripper) http.RoundTripper { return rt })
	if _, err := c.Create(within(t, time.Minute), nil); err != nil {
		t.Fatal(err)
	}
	env.Check(t, a.Pause(within(t, time.Minute)))
	_, err := c.GetProperties(within(t, 500*time.Millisecond), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused service: %v", err)
	}
	env.Check(t, a.Resume(within(t, time.Minute)))
	upload(t, c)
}
