package mongo

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// Two processes that wait in the queue hand the lock to each other. A third one that no hint wakes is
// granted the lock as well.
func TestWaitersWithoutHintsAreServed(t *testing.T) {
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	admin := mongotest.Connect(t, rs.URI())
	for what, open := range map[string]func(base *mongo.Collection) *Locker{
		"it polls": func(base *mongo.Collection) *Locker { return newTestLocker(t, base, WithWake(WakePoll)) },
		"its client has one connection": func(base *mongo.Collection) *Locker {
			client := mongotest.Connect(t, rs.URI(), options.Client().SetMaxPoolSize(1))
			return newTestLocker(t, through(client, base))
		},
		"it has only the privileges that are required": func(base *mongo.Collection) *Locker {
			db := base.Database()
			for _, command := range []bson.D{
				{{Key: "createRole", Value: "locker"}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
					{Key: "resource", Value: bson.D{{Key: "db", Value: db.Name()}, {Key: "collection", Value: base.Name()}}},
					{Key: "actions", Value: bson.A{"find", "insert", "update"}},
				}}}},
				{{Key: "createUser", Value: "locker"}, {Key: "pwd", Value: "locker-password"}, {Key: "roles", Value: bson.A{"locker"}}},
			} {
				if err := db.RunCommand(t.Context(), command).Err(); err != nil {
					t.Fatal(err)
				}
			}
			client := mongotest.Connect(t, rs.URI(), options.Client().
				SetAuth(options.Credential{AuthSource: db.Name(), Username: "locker", Password: "locker-password"}))
			return newTestLocker(t, client.Database(db.Name()).Collection(base.Name()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			base := mongotest.CollectionOf(t, admin)
			newTestLocker(t, base) // makes the collection
			third := newClient(t, open(base))
			var clients []*holdfast.Client
			for range 2 {
				client := mongotest.Connect(t, rs.URI())
				clients = append(clients, newClient(t, newTestLocker(t, through(client, base))))
			}
			grants := compete(t, append(clients, third))
			t.Logf("grants: %v", grants)
			if grants[2] < wantedGrants {
				t.Errorf("the third process was granted the lock %d times, the others %v times", grants[2], grants[:2])
			}
		})
	}
}

// wantedGrants is how often the last of the competing processes must be granted the lock before the others
// have been granted it a hundred times as often.
const wantedGrants = 5

// compete has processes lock, work and release again and again. It returns how often each was granted the
// lock.
func compete(t *testing.T, clients []*holdfast.Client) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var mu sync.Mutex
	grants, all := make([]int, len(clients)), 0
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Lock(ctx, "job")
				if err != nil {
					return
				}
				mu.Lock()
				grants[i]++
				if all++; grants[len(clients)-1] == wantedGrants || all == 100*wantedGrants {
					cancel()
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond) // the work
				if err := h.Release(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return grants
}
