//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
)

// mongoBackend starts a replica set of three with fast elections, which allows a short TTL.
func mongoBackend(t *testing.T, _ *history.Recorder) *backend {
	m := env.StartMongo(t, env.MongoOptions{})
	const ttl = 5 * time.Second
	config := workload.Config{URL: m.URL(t), TTL: ttl, Waiters: 3, MaxHold: 200 * time.Millisecond, LongHold: 3 * ttl, MaxIdle: time.Second}
	return &backend{
		name: "mongodb", ttl: ttl, grants: 4 * time.Second, maxInterval: 6 * time.Second,
		faults: mongoFaults(m),
		client: func() (workload.Config, fault.Mesh) {
			network := fault.Mesh{}
			config.Dial = map[string]string{}
			for member, host := range m.Hosts() {
				network[host] = fault.New(t, directAddress(t, m, member))
				config.Dial[host] = network[host].Addr()
			}
			return config, network
		},
	}
}

// directAddress returns an address at which a client reaches a member even while that member is
// cut off from the others: a deposed primary still has clients on its side.
func directAddress(t *testing.T, m *env.Mongo, member int) string {
	t.Helper()
	u, err := url.Parse(m.DirectURL(t, "any", member))
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func mongoFaults(m *env.Mongo) []faultKind {
	onPrimary := func(do, undo func(ctx context.Context, member int) error) injectFunc {
		return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) {
			member, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return undo(ctx, member) }, do(ctx, member)
		}
	}
	second := time.Second
	return []faultKind{
		{"primary killed (SIGKILL)", onPrimary(m.Kill, m.Restart), second, 6 * second},
		{"primary frozen", onPrimary(m.Pause, m.Resume), second, 6 * second},
		{"primary cut off, with clients on its side", onPrimary(m.CutOff, m.Rejoin), second, 6 * second},
		{"secondary killed (SIGKILL)", func(ctx context.Context, r *rand.Rand) (undoFunc, error) {
			primary, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			members := len(m.Hosts())
			member := (primary + 1 + r.IntN(members-1)) % members
			return func(ctx context.Context) error { return m.Restart(ctx, member) }, m.Kill(ctx, member)
		}, second, 6 * second},
		{"secondaries frozen, then primary killed", killPrimaryAheadOfSecondaries(m), second, 6 * second},
		{"primary steps down", injectAndUndo(m.StepDown, nil), 0, second},
		{"requests refused (rate limit)", failCommands(m, bson.E{Key: "errorCode", Value: 462}), second, 3 * second},
		{"write concern times out", failCommands(m, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}), second, 3 * second},
	}
}

// killPrimaryAheadOfSecondaries kills a primary whose secondaries have missed its last writes.
// Writes that only the primary had acknowledged are lost.
func killPrimaryAheadOfSecondaries(m *env.Mongo) injectFunc {
	return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) {
		primary, err := m.Primary(ctx)
		if err != nil {
			return nil, err
		}
		var errs []error
		var frozen []int
		for member := range m.Hosts() {
			if member == primary {
				continue
			}
			if err := m.Pause(ctx, member); err != nil {
				errs = append(errs, err)
				continue
			}
			frozen = append(frozen, member)
		}
		time.Sleep(700 * time.Millisecond) // shorter than the election timeout: it stays primary
		ctx = context.WithoutCancel(ctx)
		errs = append(errs, m.Kill(ctx, primary))
		for _, member := range frozen {
			errs = append(errs, m.Resume(ctx, member))
		}
		return func(ctx context.Context) error { return m.Restart(ctx, primary) }, errors.Join(errs...)
	}
}

// failCommands makes the primary fail some of the next commands. The fault ends by itself.
func failCommands(m *env.Mongo, failure bson.E) injectFunc {
	return func(ctx context.Context, r *rand.Rand) (undoFunc, error) {
		return nil, m.Admin(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 5 + r.IntN(30)}}},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"findAndModify", "update", "find"}}, failure}},
		})
	}
}
