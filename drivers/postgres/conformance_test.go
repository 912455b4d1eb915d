package postgres

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// with adds parameters to a URL.
var with = serverprocess.WithParams

func TestConformance(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	suite(t, at, at)
}

// Every statement goes through a pooler that forbids transactions of several statements; one connection goes past it. The default
// isolation level is the strictest.
func TestConformanceStatementPooling(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"default_transaction_isolation": "serializable"}})
	at := server.Database(t)
	pooled := postgrestest.PgBouncer(t, server, postgrestest.StatementMode).At(t, at)
	suite(t, with(pooled, "listen="+url.QueryEscape(at)), at)
}

// suite runs the conformance suite on Lockers that are opened at one URL. The tables are reached by the other.
func suite(t *testing.T, lockers, direct string) {
	t.Helper()
	staller := client(t, direct)
	// change makes a change of the table, and returns a function that makes another.
	change := func(there, back string, args ...any) (func(), error) {
		_, err := staller.Exec(t.Context(), there, args...)
		return func() {
			if _, err := staller.Exec(context.WithoutCancel(t.Context()), back, args...); err != nil {
				t.Error(err)
			}
		}, err
	}
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker { return open(t, lockers) },
		Forget: func(ctx context.Context, name string) error {
			c, err := pgx.Connect(ctx, direct)
			if err != nil {
				return err
			}
			_, err = c.Exec(ctx, `DELETE FROM holdfast_locks WHERE name = $1`, toText(name))
			_ = c.Close(ctx)
			return err
		},
		Stall: func(ctx context.Context, _ string) (func(), error) {
			if _, err := staller.Exec(ctx, `BEGIN; LOCK TABLE holdfast_locks IN ACCESS EXCLUSIVE MODE`); err != nil {
				return nil, err
			}
			return func() { _, _ = staller.Exec(context.Background(), `ROLLBACK`) }, nil
		},
		// The user owns the table. Also an owner has no rights that were revoked.
		Deny: func(context.Context, string) (func(), error) {
			return change(`REVOKE ALL ON holdfast_locks FROM CURRENT_USER`, `GRANT ALL ON holdfast_locks TO CURRENT_USER`)
		},
		Damage: func(_ context.Context, name string) (func(), error) {
			return change(`UPDATE holdfast_locks SET queue = '"x"' WHERE name = $1`, `UPDATE holdfast_locks SET queue = NULL WHERE name = $1`,
				toText(name))
		},
		Secrets: []string{postgrestest.AppPassword},
	})
}
