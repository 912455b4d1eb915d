package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// absent is a server whose commits wait for a standby that is not there. The defaults of the user would neither wait nor
// show the server's warning.
func absent(t *testing.T) (server *postgrestest.Server, at string) {
	t.Helper()
	server = postgrestest.Start(t, postgrestest.Options{})
	at = server.Database(t)
	closeLocker(t, open(t, at)) // makes the table
	admin := client(t, server.AdminURL(""))
	run(t, admin, `ALTER ROLE `+postgrestest.AppUser+` SET synchronous_commit = off`)
	run(t, admin, `ALTER ROLE `+postgrestest.AppUser+` SET client_min_messages = error`)
	server.Set(t, "synchronous_standby_names", "nobody")
	postgrestest.WaitFor(t, "the setting is in effect", func() bool {
		return scan[string](t, client(t, server.AdminURL("")), `SHOW synchronous_standby_names`) == "nobody"
	})
	return server, at
}

// cancelWaiting cancels the statements that wait for a standby, and returns when there was one.
func cancelWaiting(t *testing.T, server *postgrestest.Server) {
	t.Helper()
	admin := client(t, server.AdminURL(""))
	postgrestest.WaitFor(t, "a commit waits for the standby", func() bool {
		return scan[int](t, admin, `SELECT count(pg_cancel_backend(pid))::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) > 0
	})
}

// A commit whose wait for a standby was cancelled is reported as a success by the server, and a fail-over would forget it.
// The driver returns an error with an unknown outcome, and the caller can clean up. Defaults of the user do not hide it.
func TestCancelledWaitForStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server, at := absent(t)
	l := open(t, at, WithCommandTimeout(50*time.Second))
	if l.Info().Failover != driver.GrantsSurvive {
		t.Error("the driver does not declare that grants survive")
	}
	var lease driver.Lease
	for _, c := range []struct {
		what string
		call func(context.Context) error
	}{
		{"acquire", func(ctx context.Context) (err error) {
			lease, err = l.TryAcquire(ctx, request("job", "first"))
			return err
		}},
		{"repeat", func(ctx context.Context) (err error) {
			lease, err = l.TryAcquire(ctx, request("job", "first"))
			return err
		}},
		{"renew", func(ctx context.Context) error {
			_, err := l.Renew(ctx, driver.Lease{Name: "job", ID: driver.NewLeaseID("first"), TTL: time.Minute})
			return err
		}},
		{"release", func(ctx context.Context) error {
			return l.Release(ctx, driver.Lease{Name: "job", ID: driver.NewLeaseID("first")})
		}},
		{"release again", func(ctx context.Context) error {
			return l.Release(ctx, driver.Lease{Name: "job", ID: driver.NewLeaseID("first")})
		}},
		{"release again, in a batch", func(ctx context.Context) error {
			return l.ReleaseBatch(ctx, []driver.Lease{{Name: "job", ID: driver.NewLeaseID("first")}})[0]
		}},
		{"acquire once more", func(ctx context.Context) error {
			_, err := l.TryAcquire(ctx, request("job", "broken"))
			return err
		}},
		{"break", func(ctx context.Context) error { return l.Break(ctx, "job", driver.BreakAnybody()) }},
		{"break again", func(ctx context.Context) error { return l.Break(ctx, "job", driver.BreakAnybody()) }},
		{"break now", func(ctx context.Context) error { return l.BreakNow(ctx, "job", driver.BreakAnybody()) }},
		{"break now, again", func(ctx context.Context) error { return l.BreakNow(ctx, "job", driver.BreakAnybody()) }},
	} {
		result := make(chan error, 1)
		go func() { result <- c.call(bounded(t)) }()
		cancelWaiting(t, server)
		if err := <-result; driver.OutcomeKnown(err) {
			t.Errorf("%s: %v (lease %v); the outcome is unknown", c.what, err, lease)
		}
	}
	server.Set(t, "synchronous_standby_names", "")
	postgrestest.WaitFor(t, "the setting is in effect", func() bool {
		ctx, cancel := context.WithTimeout(bounded(t), time.Second)
		defer cancel()
		_, err := l.TryAcquire(ctx, request("job", "third")) // the release had taken effect
		return err == nil
	})
}

// An UNLOGGED table is empty on every standby, so that none of its grants survives a fail-over: no commit waits for one.
func TestUnloggedTableForgetsGrants(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	closeLocker(t, open(t, at)) // makes the table
	run(t, client(t, at), `ALTER TABLE holdfast_locks SET UNLOGGED`)
	server.Standby(t, true)
	if got := open(t, at).Info().Failover; got != driver.GrantsMayBeForgotten {
		t.Errorf("declared: %v", got)
	}
	run(t, client(t, at), `ALTER TABLE holdfast_locks SET LOGGED`)
	if got := open(t, at).Info().Failover; got != driver.GrantsSurvive {
		t.Errorf("declared with a table that standbys have: %v", got)
	}
}

// A call that waits for a standby ends with its context.
func TestWaitForStandbyIsBounded(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	_, at := absent(t)
	l := open(t, at)
	l.config.timeout = 200 * time.Millisecond // to connect takes longer on a busy machine
	start := time.Now()
	_, err := l.TryAcquire(bounded(t), request("job", "first"))
	if !errors.Is(err, context.DeadlineExceeded) || driver.OutcomeKnown(err) || time.Since(start) > 20*time.Second {
		t.Error(err, time.Since(start))
	}
}
