package env_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// write inserts a row at a URL, whichever member is the primary there. A member that is gone may answer nothing, and pgx tries it
// twice, with TLS and without: there must be time for the others in the same attempt.
func write(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url+"&target_session_attrs=primary&connect_timeout=2")
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "CREATE TABLE IF NOT EXISTS t (a int)")
	if err == nil {
		_, err = c.Exec(ctx, "INSERT INTO t VALUES (1)")
	}
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

// mustWrite waits until a write succeeds.
func mustWrite(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := write(within(t, 20*time.Second), url)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no write within a minute: %v", err)
		}
	}
}

// expectNoWrite fails if a member alone acknowledges a write.
func expectNoWrite(t *testing.T, url string) {
	t.Helper()
	if err := write(within(t, time.Second), url); err == nil {
		t.Error("a write without the synchronous standby was acknowledged")
	}
}

// After each fault of the primary the synchronous standby is promoted and takes writes. The old primary alone
// acknowledges none. It becomes a standby again, without which no write is acknowledged.
func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	p := env.StartPostgres(t, env.PostgresOptions{Asynchronous: true})
	url := p.URL(t)
	mustWrite(t, url)
	for _, fault := range []struct {
		name         string
		inject, undo func(context.Context, int) error
	}{
		{"kill", p.Kill, p.Restart},
		{"pause", p.Pause, p.Resume},
		{"cut off", p.CutOff, p.Rejoin},
	} {
		t.Run(fault.name, func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			old := p.Primary()
			next := 1 - old
			env.Check(t, fault.inject(ctx, old))
			env.Check(t, p.Promote(ctx, next))
			mustWrite(t, url)
			env.Check(t, fault.undo(ctx, old))
			expectNoWrite(t, p.Through(t, url, p.Hosts()[old]))
			env.Check(t, p.Follow(ctx, old, true))
			mustWrite(t, url)
			env.Check(t, p.Kill(ctx, old))
			expectNoWrite(t, url)
			env.Check(t, p.Restart(ctx, old))
			mustWrite(t, url)
		})
	}
	ctx := within(t, 3*time.Minute)
	env.Check(t, p.Follow(ctx, 2, false)) // it followed a primary that is gone
	for member := range 2 {
		env.Check(t, p.Kill(ctx, member))
	}
	env.Check(t, p.Promote(ctx, 2))
	mustWrite(t, url)
	mustWrite(t, p.PgBouncer(t, 2, postgrestest.TransactionMode).At(t, url)+"&default_query_exec_mode=exec")
}
