//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// postgresBackend starts a primary and a synchronous standby. Every other client goes through PgBouncer, one of each mode in
// front of each server.
func postgresBackend(t *testing.T, _ *history.Recorder) *backend {
	p := env.StartPostgres(t, env.PostgresOptions{})
	const ttl = 5 * time.Second
	database := p.URL(t)
	var servers []string
	poolers := make([][]string, 3) // by mode
	for member := range p.Hosts() {
		servers = append(servers, p.DirectAddress(member))
		for i, mode := range []string{postgrestest.TransactionMode, postgrestest.SessionMode, postgrestest.StatementMode} {
			poolers[i] = append(poolers[i], p.PgBouncer(t, member, mode).Addr())
		}
	}
	clients := 0
	return &backend{
		name: "postgres", ttl: ttl, grants: 4 * time.Second, maxInterval: 4 * time.Second,
		faults: postgresFaults(p),
		client: func() (workload.Config, fault.Mesh) {
			to := servers
			if clients++; clients%2 == 0 {
				to = poolers[clients/2%3]
			}
			network := fault.NewMesh(t, to)
			var hosts []string
			for _, host := range to {
				hosts = append(hosts, network[host].Addr())
			}
			return workload.Config{URL: p.Through(t, database, hosts...), TTL: ttl, Waiters: 3, MaxHold: 200 * time.Millisecond,
				LongHold: 3 * ttl, MaxIdle: time.Second}, network
		},
	}
}

func postgresFaults(p *env.Postgres) []faultKind {
	// replaced injects a fault into the primary and promotes the standby. At the end the old primary becomes the standby.
	replaced := func(inject func(ctx context.Context, old int) error, then ...func(ctx context.Context, old int) error) injectFunc {
		return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) {
			old := p.Primary()
			ctx = context.WithoutCancel(ctx)
			err := inject(ctx, old)
			if errors.Is(err, env.ErrUnsupported) {
				return nil, err
			}
			if err == nil {
				err = p.Promote(ctx, 1-old)
			}
			for _, do := range then {
				if err == nil {
					err = do(ctx, old)
				}
			}
			return func(ctx context.Context) error { return p.Follow(ctx, old, true) }, err
		}
	}
	on := func(member func() int, do, undo func(ctx context.Context, member int) error) injectFunc {
		return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) {
			m := member()
			return func(ctx context.Context) error { return undo(ctx, m) }, do(ctx, m)
		}
	}
	standby := func() int { return 1 - p.Primary() }
	second := time.Second
	return []faultKind{
		{"primary killed (SIGKILL), standby promoted", replaced(p.Kill), 0, 3 * second},
		{"primary frozen, standby promoted, two primaries", replaced(p.Pause, p.Resume, cancelWaits(p)), second, 5 * second},
		{"primary cut off, standby promoted, clients on both sides", postgresCutOff(p), second, 5 * second},
		{"standby down, waits for it cancelled, primary killed, standby promoted", replaced(killPrimaryAheadOfStandby(p)), 0, 3 * second},
		{"primary killed (SIGKILL) and restarted", on(p.Primary, p.Kill, p.Restart), second / 10, 3 * second},
		{"primary frozen", on(p.Primary, p.Pause, p.Resume), second, 5 * second},
		{"standby frozen", on(standby, p.Pause, p.Resume), second, 5 * second},
		{"standby killed (SIGKILL), waits for it cancelled", on(standby, func(ctx context.Context, member int) error {
			return errors.Join(p.Kill(ctx, member), cancelWaits(p)(ctx, 1-member))
		}, p.Restart), 0, 3 * second},
		{"connections ended (pg_terminate_backend)", endStatements(p, "pg_terminate_backend"), 0, second},
		{"statements cancelled (pg_cancel_backend)", endStatements(p, "pg_cancel_backend"), 0, second},
	}
}

// postgresCutOff cuts the primary off from its standby, which is promoted. Clients reach both.
func postgresCutOff(p *env.Postgres) injectFunc {
	return func(ctx context.Context, _ *rand.Rand) (undoFunc, error) {
		old := p.Primary()
		ctx = context.WithoutCancel(ctx)
		if err := p.CutOff(ctx, old); err != nil {
			return nil, err
		}
		err := p.Promote(ctx, 1-old)
		if err == nil {
			err = cancelWaits(p)(ctx, old)
		}
		return func(ctx context.Context) error {
			return errors.Join(p.Kill(ctx, old), p.Rejoin(ctx, old), p.Follow(ctx, old, true))
		}, err
	}
}

// cancelWaits cancels for a second what waits for a synchronous standby that is gone: the server then reports success.
func cancelWaits(p *env.Postgres) func(ctx context.Context, member int) error {
	return func(ctx context.Context, member int) error {
		var err error
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			err = errors.Join(err, p.Cancel(ctx, member, "pg_cancel_backend", env.Waiting))
		}
		return err
	}
}

// killPrimaryAheadOfStandby kills a primary whose standby has missed its last writes. What has waited for the standby
// and was cancelled is lost.
func killPrimaryAheadOfStandby(p *env.Postgres) func(ctx context.Context, primary int) error {
	return func(ctx context.Context, primary int) error {
		return errors.Join(p.Kill(ctx, 1-primary), cancelWaits(p)(ctx, primary), p.Kill(ctx, primary), p.Restart(ctx, 1-primary))
	}
}

// endStatements ends what clients run on the primary, a few times. The fault ends by itself.
func endStatements(p *env.Postgres, function string) injectFunc {
	return func(ctx context.Context, r *rand.Rand) (undoFunc, error) {
		for range 1 + r.IntN(10) {
			if err := p.Cancel(ctx, p.Primary(), function, "state <> 'idle' OR random() < 0.3"); err != nil {
				return nil, err
			}
			time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		}
		return nil, nil
	}
}
