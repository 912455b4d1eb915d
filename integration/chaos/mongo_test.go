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
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

// onMongo is a replica set of three with quick elections, and so with a short TTL.
func onMongo(t *testing.T, _ *history.Recorder) *target {
	m := env.StartMongo(t, env.MongoOptions{})
	const ttl = 5 * time.Second
	config := workload.Config{URL: m.URL(t), TTL: ttl, Waiters: 3, Hold: 200 * time.Millisecond, Long: 3 * ttl, Between: time.Second}
	return &target{
		name: "mongodb", ttl: ttl, grants: 4 * time.Second, gap: 6 * time.Second,
		faults: mongoFaults(m),
		client: func() (workload.Config, fault.Mesh) {
			wire := fault.Mesh{}
			config.Dial = map[string]string{}
			for member, host := range m.Hosts() {
				wire[host] = fault.New(t, outside(t, m, member))
				config.Dial[host] = wire[host].Addr()
			}
			return config, wire
		},
	}
}

// outside is where a client finds a member also while that is cut off from the others:
// a deposed primary has clients on its side.
func outside(t *testing.T, m *env.Mongo, member int) string {
	t.Helper()
	u, err := url.Parse(m.DirectURL(t, "any", member))
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func mongoFaults(m *env.Mongo) []disturbance {
	onPrimary := func(do, undo func(ctx context.Context, member int) error) beginning {
		return func(ctx context.Context, _ *rand.Rand) (ending, error) {
			member, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return undo(ctx, member) }, do(ctx, member)
		}
	}
	second := time.Second
	return []disturbance{
		{"primary killed (SIGKILL)", onPrimary(m.Kill, m.Restart), second, 6 * second},
		{"primary frozen", onPrimary(m.Pause, m.Resume), second, 6 * second},
		{"primary cut off, with clients on its side", onPrimary(m.CutOff, m.Rejoin), second, 6 * second},
		{"secondary killed (SIGKILL)", func(ctx context.Context, r *rand.Rand) (ending, error) {
			primary, err := m.Primary(ctx)
			if err != nil {
				return nil, err
			}
			members := len(m.Hosts())
			member := (primary + 1 + r.IntN(members-1)) % members
			return func(ctx context.Context) error { return m.Restart(ctx, member) }, m.Kill(ctx, member)
		}, second, 6 * second},
		{"secondaries frozen, then primary killed", leftBehind(m), second, 6 * second},
		{"primary steps down", between(m.StepDown, nil), 0, second},
		{"requests refused (rate limit)", failing(m, bson.E{Key: "errorCode", Value: 462}), second, 3 * second},
		{"write concern times out", failing(m, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}), second, 3 * second},
	}
}

// leftBehind kills a primary whose secondaries have missed its last writes: those that
// it had acknowledged on its own are lost.
func leftBehind(m *env.Mongo) beginning {
	return func(ctx context.Context, _ *rand.Rand) (ending, error) {
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

// failing has the primary fail some of the next commands, in a way that undoes itself.
func failing(m *env.Mongo, how bson.E) beginning {
	return func(ctx context.Context, r *rand.Rand) (ending, error) {
		return nil, m.Admin(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 5 + r.IntN(30)}}},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"findAndModify", "update", "find"}}, how}},
		})
	}
}
