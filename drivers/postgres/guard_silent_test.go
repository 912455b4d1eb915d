package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// deadNetwork is a network that falls silent for good when a client sends what contains a text, once that is armed.
type deadNetwork struct {
	*castest.Proxy
	at    string
	armed atomic.Bool
}

// silentNetwork returns a network before the server of a fixture, and the settings of a pool behind it.
func (g *guardFixture) silentNetwork(at string) (*deadNetwork, *pgxpool.Config) {
	settings := g.db.Config()
	server := settings.ConnConfig
	s := &deadNetwork{Proxy: castest.NewProxy(g.t, net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port)))), at: at}
	server.DefaultQueryExecMode = pgx.QueryExecModeExec // sends the text of each statement
	server.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
		return spy{conn, s}, err
	}
	return s, settings
}

// spy is a connection of a silent network.
type spy struct {
	net.Conn
	network *deadNetwork
}

func (c spy) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte(c.network.at)) && c.network.armed.CompareAndSwap(true, false) {
		c.network.Set(castest.Stall)
	}
	return c.Conn.Write(data)
}

// A network that falls silent at any step does not keep Do for longer than its limits, and the outcome is known unless that is the
// commit.
func TestGuardOnASilentNetwork(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	mine := errors.New("mine")
	for at, fails := range map[string]error{
		"begin\x00": nil, "SELECT count(*), ": nil, "WITH guard AS": nil, "commit\x00": nil, "rollback\x00": mine,
	} {
		for _, driverName := range []string{"pgx pool", "pgx"} {
			t.Run(strings.Trim(at, "\x00")+"/"+driverName, func(t *testing.T) {
				t.Parallel()
				g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
				a := g.hold("a")
				network, settings := g.silentNetwork(at)
				var db *sql.DB
				if driverName == "pgx pool" {
					pool, err := pgxpool.NewWithConfig(t.Context(), settings)
					if err != nil {
						t.Fatal(err)
					}
					defer pool.Close()
					guard, err := NewGuard(g.locker, pool, pgx.TxOptions{})
					if err != nil {
						t.Fatal(err)
					}
					guard.stepLimit, guard.commitLimit = limit, limit
					g.guardKind = pgxKind{guard}
				} else {
					db = stdlib.OpenDB(*settings.ConnConfig)
					defer func() { _ = db.Close() }()
					guard, err := NewSQLGuard(g.locker, db, nil)
					if err != nil {
						t.Fatal(err)
					}
					guard.stepLimit, guard.commitLimit = limit, limit
					g.guardKind = sqlKind{guard}
				}
				defer network.Set(castest.Refuse) // first: the client closes its connections
				if err := g.do(t.Context(), a, note("before")); err != nil {
					t.Fatal(err)
				}
				network.armed.Store(true)
				began := time.Now()
				err := locktest.Within(t, 5*limit, "Do", func() error {
					return g.do(t.Context(), a, func(ctx context.Context, run statement) error {
						return errors.Join(note("silent")(ctx, run), fails)
					})
				})
				want := fails
				if want == nil {
					want = context.DeadlineExceeded
				}
				if !errors.Is(err, want) || errors.Is(err, ErrInDoubt) != (at == "commit\x00") {
					t.Errorf("got %v, want %v", err, want)
				}
				if took := time.Since(began); took < limit || network.armed.Load() {
					t.Errorf("the network has not been silent: %v", took)
				}
				if db != nil && db.Stats().InUse > 0 {
					t.Errorf("%d connections have not come back", db.Stats().InUse)
				}
				network.Set(castest.Refuse)
				g.wantLines("before")
			})
		}
	}
}

// The same holds of a fence that is raised in a transaction of its own.
func TestFenceOnASilentNetwork(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"begin\x00", "rollback\x00"} {
		t.Run(strings.Trim(at, "\x00"), func(t *testing.T) {
			t.Parallel()
			g := newFenceFixture(t, "pgx pool", pgx.ReadCommitted)
			network, settings := g.silentNetwork(at)
			pool, err := pgxpool.NewWithConfig(t.Context(), settings)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			defer network.Set(castest.Refuse)
			fence, err := NewFence(pool, pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			fence.stepLimit = 2 * time.Second
			if err := fence.Raise(t.Context(), "job", 7); err != nil {
				t.Fatal(err)
			}
			network.armed.Store(true)
			want := map[string]error{"begin\x00": context.DeadlineExceeded, "rollback\x00": driver.ErrLost}[at]
			err = locktest.Within(t, 10*time.Second, "Raise", func() error { return fence.Raise(t.Context(), "job", 5) })
			if !errors.Is(err, want) || network.armed.Load() {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}
