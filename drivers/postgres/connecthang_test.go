package postgres

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// A connection that hangs while it is made keeps the pool's only place for no longer than a call waits, whatever hangs. pgx makes
// connections without the contexts of the calls.
func TestAConnectionThatHangsWhileItIsMade(t *testing.T) {
	t.Parallel()
	for name, hangIf := range map[string]func(c *pgxpool.Config, hangs *atomic.Bool){
		"the lookup of its name": func(c *pgxpool.Config, hangs *atomic.Bool) {
			lookUp := c.ConnConfig.LookupFunc
			c.ConnConfig.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
				if hangs.Load() {
					<-ctx.Done()
				}
				return lookUp(ctx, host)
			}
		},
		"the server": func(c *pgxpool.Config, hangs *atomic.Bool) {
			dial := c.ConnConfig.DialFunc
			c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if hangs.Load() {
					silent, _ := net.Pipe()
					return silent, nil
				}
				return dial(ctx, network, address)
			}
		},
		"BeforeConnect": func(c *pgxpool.Config, hangs *atomic.Bool) {
			c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error { return waitIf(ctx, hangs) }
		},
		"AfterConnect": func(c *pgxpool.Config, hangs *atomic.Bool) {
			c.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error { return waitIf(ctx, hangs) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hangs atomic.Bool
			l, err := openWith(bounded(t), t, postgrestest.URL(t), func(c *pgxpool.Config) {
				c.MaxConns = 1
				hangIf(c, &hangs)
			}, WithCommandTimeout(3*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			lease := acquire(t, l, longRequest("job", "a"))
			hangs.Store(true)
			l.pool.Reset()
			if _, err := l.Renew(bounded(t), lease); err == nil {
				t.Fatal("a renewal without a connection succeeded")
			}
			hangs.Store(false)
			if err := certain(t, func() error { return errOf(l.Renew(bounded(t), lease)) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func waitIf(ctx context.Context, hangs *atomic.Bool) error {
	if !hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// A host whose name nobody resolves delays the others by its time limit, and no longer.
func TestAHostWhoseNameHangs(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	two := strings.Replace(at, "@127.0.0.1:", "@slow.invalid:1,127.0.0.1:", 1)
	l, err := openWith(bounded(t), t, two, func(c *pgxpool.Config) {
		lookUp := c.ConnConfig.LookupFunc
		c.ConnConfig.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			if host == "slow.invalid" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return lookUp(ctx, host)
		}
	}, WithCommandTimeout(50*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, l, request("job", "a"))
}

// A database whose connections are all in use is an error in time, also without a context that ends.
func TestNewDBWithoutAFreeConnection(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	used, err := db.Conn(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	_, err = NewDB(bounded(t), db, WithLogger(discard), WithCommandTimeout(100*time.Millisecond))
	const want = "no connection of the database was free or could be made within 100ms"
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
