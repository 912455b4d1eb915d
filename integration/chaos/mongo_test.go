//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/workload"
)

// onMongo is a replica set of three with quick elections, and so with a short TTL.
func onMongo(t *testing.T) *target {
	m := env.StartMongo(t, env.MongoOptions{})
	const ttl = 5 * time.Second
	config := workload.Config{URL: m.URL(t), TTL: ttl, Hold: 400 * time.Millisecond, Long: 2 * ttl, Between: time.Second}
	return &target{
		name: "mongodb", ttl: ttl, grants: 3 * time.Second, gap: 6 * time.Second,
		faults: mongoFaults(m),
		client: func(int) (workload.Config, wire) { return config, nil },
	}
}

func mongoFaults(m *env.Mongo) []fault {
	onPrimary := func(do, undo func(ctx context.Context, member int) error) func(context.Context, *rand.Rand) (func(context.Context) error, error) {
		return func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			member, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return undo(ctx, member) }, do(ctx, member)
		}
	}
	second := time.Second
	return []fault{
		{"primary killed (SIGKILL)", onPrimary(m.Kill, m.Restart), second, 6 * second},
		{"primary frozen", onPrimary(m.Pause, m.Resume), second, 6 * second},
		{"primary cut off", onPrimary(m.CutOff, m.Rejoin), second, 6 * second},
		{"secondary killed (SIGKILL)", func(ctx context.Context, r *rand.Rand) (func(context.Context) error, error) {
			primary, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			members := len(m.Hosts())
			member := (primary + 1 + r.IntN(members-1)) % members
			return func(ctx context.Context) error { return m.Restart(ctx, member) }, m.Kill(ctx, member)
		}, second, 6 * second},
		{"primary steps down", once(m.StepDown), 0, second},
		{"requests refused (rate limit)", failing(m, bson.E{Key: "errorCode", Value: 462}), second, 3 * second},
		{"write concern times out", failing(m, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}), second, 3 * second},
	}
}

func once(do func(ctx context.Context) error) func(context.Context, *rand.Rand) (func(context.Context) error, error) {
	return func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) { return nil, do(ctx) }
}

// failing has the primary fail some of the next commands, in a way that undoes itself.
func failing(m *env.Mongo, how bson.E) func(context.Context, *rand.Rand) (func(context.Context) error, error) {
	return func(ctx context.Context, r *rand.Rand) (func(context.Context) error, error) {
		return nil, m.Admin(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 5 + r.IntN(30)}}},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"findAndModify", "update", "find"}}, how}},
		})
	}
}
