package mongo

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// TestWatchFaults shares one replica set among faults of servers and privileges.
func TestWatchFaults(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Auth: true})
	admin := mongotest.Connect(t, rs.URI())

	t.Run("without the privilege", func(t *testing.T) {
		coll := mongotest.CollectionOf(t, admin)
		db := coll.Database()
		for _, command := range []bson.D{
			{
				{Key: "createRole", Value: "locker"}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
					{Key: "resource", Value: bson.D{{Key: "db", Value: db.Name()}, {Key: "collection", Value: ""}}},
					{Key: "actions", Value: bson.A{"find", "insert", "update", "remove"}},
				}}},
			},
			{{Key: "createUser", Value: "locker"}, {Key: "pwd", Value: "locker-password"}, {Key: "roles", Value: bson.A{"locker"}}},
		} {
			if err := db.RunCommand(t.Context(), command).Err(); err != nil {
				t.Fatal(err)
			}
		}
		seen := newCommandCounter()
		client := mongotest.Connect(t, rs.URI(), options.Client().SetMonitor(seen.monitor()).
			SetAuth(options.Credential{AuthSource: db.Name(), Username: "locker", Password: "locker-password"}))
		logger, log := locktest.NewLog()
		w := newStreamWatcher(client.Database(db.Name()).Collection(coll.Name()), logger)
		defer w.close(t.Context())
		wake, stop := watchName(w, "a")
		defer stop()
		eventually(t, "warning", func() bool { return strings.Contains(log.String(), "level=WARN") })
		if text := log.String(); strings.Contains(text, "password") || !strings.Contains(text, coll.Name()) {
			t.Errorf("the warning must name the collection and no password: %s", text)
		}
		if wasWoken(wake) || seen.count("aggregate") != 1 {
			t.Errorf("opened %d streams", seen.count("aggregate"))
		}
	})

	t.Run("primary killed, next one frozen", func(t *testing.T) {
		coll := mongotest.CollectionOf(t, admin)
		w := testWatcher(t, coll)
		w.timeout = 3 * time.Second
		wake, stop := watchName(w, "a")
		defer stop()
		awaitWake(t, wake, "stream opened")
		primary, err := rs.Primary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := rs.Kill(primary); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		awaitWake(t, wake, "stream opened after the primary's end")
		t.Logf("stream open again %v after the kill", time.Since(begin).Round(time.Millisecond))
		awaitRelease(t, coll, wake, "a")

		if err := rs.Restart(t.Context(), primary); err != nil {
			t.Fatal(err)
		}
		if primary, err = rs.Primary(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := rs.Pause(primary); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		awaitWake(t, wake, "stream opened after the primary froze")
		t.Logf("stream open again %v after the freeze", time.Since(begin).Round(time.Millisecond))
		awaitRelease(t, coll, wake, "a")
		if err := rs.Resume(primary); err != nil {
			t.Fatal(err)
		}
	})
}
