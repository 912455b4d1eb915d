package env

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// PostgresOptions are the options of PostgreSQL servers. The zero value means a primary, member 0, and a
// synchronous standby, member 1.
type PostgresOptions struct {
	// Asynchronous adds an asynchronous standby, member 2.
	Asynchronous bool
}

// Postgres is a PostgreSQL server, or a primary and its standbys. Members are numbered from 0. There is no
// cluster manager: a test promotes a standby with [Postgres.Promote], and makes the old primary its standby
// with [Postgres.Follow]. A fault returns when it has taken effect, or with an error that wraps
// [ErrUnsupported]; [Check] handles both. Its methods are safe for concurrent use, except for two faults of
// one member at the same time.
type Postgres struct {
	*servers        // none if the server outlives the test
	admin    string // URL of the only server; empty if there are members
	// order gives a stopped server a line that it follows when it is next started; see postgres.sh.
	order func(ctx context.Context, member int, line []byte) error

	mu      sync.Mutex
	primary int
}

// StartPostgres starts servers for this test alone and removes them at the end. It waits while three other
// tests have servers of several members.
func StartPostgres(tb testing.TB, opts PostgresOptions) *Postgres {
	tb.Helper()
	waitForTurn(tb)
	start, members := postgresContainers, 2
	if suite.mode == Processes {
		start = postgresProcesses
	}
	if opts.Asynchronous {
		members = 3
	}
	return own(tb, func(ctx context.Context, dir string) (*Postgres, error) {
		p, err := start(ctx, dir, members)
		if err != nil {
			return nil, err
		}
		if err := p.replicate(ctx); err != nil {
			return nil, errors.Join(err, p.terminate())
		}
		return p, nil
	})
}

// postgresScript starts a server in a container or as a process.
//
//go:embed postgres.sh
var postgresScript string

// followLines numbers the lines that make a server a standby, so that each is used once.
var followLines atomic.Int64

func postgresEnv() map[string]string {
	return map[string]string{"ADMIN": postgrestest.AdminUser, "PGPASSWORD": postgrestest.AdminPassword, "LC_ALL": "C"}
}

func postgresContainers(ctx context.Context, _ string, members int) (*Postgres, error) {
	const port, folder, orders = "5432", "/tmp/holdfast", "/tmp/holdfast-follow"
	s, err := startContainers(ctx, members, containers{
		what: "PostgreSQL", name: "postgres", image: PostgresImage(), port: port, ready: "ready to accept", twoNetworks: true,
		run: func(ctx context.Context, more ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
			return notNil(testcontainers.Run(ctx, PostgresImage(), append(more,
				testcontainers.WithEntrypoint("sh", "-c", postgresScript, "sh", folder, port, orders), testcontainers.WithEnv(postgresEnv()),
				testcontainers.WithConfigModifier(func(c *dockercontainer.Config) { c.User = "postgres" }))...))
		},
	})
	if err != nil {
		return nil, err
	}
	return &Postgres{servers: s, order: func(ctx context.Context, member int, line []byte) error {
		return s.all[member].(*container).ctr.CopyToContainer(ctx, line, orders, 0o644) //nolint:forcetypeassert // all are
	}}, nil
}

func postgresProcesses(ctx context.Context, dir string, members int) (*Postgres, error) {
	bin, err := testservers.PostgresBin.Path(ctx)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "LISTEN=" + serverprocess.Host}
	for name, value := range postgresEnv() {
		env = append(env, name+"="+value)
	}
	configs, orders := make([]serverprocess.Config, members), make([]string, members)
	for i := range configs {
		configs[i] = serverprocess.Config{
			Name: "PostgreSQL", Program: "/bin/sh", Env: env, Unprivileged: true, Ready: postgrestest.Ready(bin),
			Args: func(port, data string) []string {
				orders[i] = filepath.Join(data, "follow")
				return []string{"-c", postgresScript, "sh", data, port, orders[i]}
			},
		}
	}
	started, err := serverprocess.Start(ctx, dir, configs...)
	if err != nil {
		return nil, err
	}
	return &Postgres{servers: processes("PostgreSQL", started...), order: func(_ context.Context, member int, line []byte) error {
		return os.WriteFile(orders[member], line, 0o644) //nolint:gosec // the server's user reads it
	}}, nil
}

// replicate makes the user of the tests, and the standbys.
func (p *Postgres) replicate(ctx context.Context) error {
	err := p.SQL(ctx, 0, "CREATE ROLE "+postgrestest.AppUser+" LOGIN PASSWORD '"+postgrestest.AppPassword+"'")
	for member := 1; member < len(p.all) && err == nil; member++ {
		err = p.Follow(ctx, member, member == 1)
	}
	return err
}

// SharedPostgres returns a server without standbys that all tests of the package share, and in containers
// those of all packages. They inject faults only through proxies of their own.
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	return suite.postgres.get(tb, func() (*Postgres, error) {
		switch suite.mode {
		case Endpoints:
			admin, err := endpoint(postgrestest.EnvURL)
			return &Postgres{admin: admin}, err
		case Containers:
			c := holdfastcontainers.Postgres(tb, holdfastcontainers.WithImage(PostgresImage()))
			fmt.Printf("integration: shared: PostgreSQL of %s at %s\n", PostgresImage(), c.Host)
			admin, err := postgrestest.WithDatabase(c.URL, "postgres")
			return &Postgres{admin: admin}, err
		}
		s, err := postgrestest.New(context.Background(), suite.dir, postgrestest.Options{Settings: map[string]string{"max_connections": "500"}})
		if err != nil {
			return nil, err
		}
		return &Postgres{admin: s.AdminURL(""), servers: &servers{rest: []func() error{s.Remove}}}, nil
	})
}

// Hosts returns the addresses of the members, in order.
func (p *Postgres) Hosts() []string {
	if p.admin == "" {
		return p.addresses()
	}
	u, err := url.Parse(p.admin)
	if err != nil {
		return nil
	}
	return strings.Split(u.Host, ",")
}

// Primary returns the member that was promoted last, at first 0.
func (p *Postgres) Primary() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.primary
}

// URL returns a URL for holdfast.Open with a database of this test's own. It names all members. A frozen
// one delays a client for three seconds, the default.
func (p *Postgres) URL(tb testing.TB) string {
	tb.Helper()
	name := "holdfast_" + strings.ToLower(rand.Text())
	if p.admin != "" {
		return p.sharedDatabase(tb, name)
	}
	Check(tb, p.SQL(tb.Context(), p.Primary(), "CREATE DATABASE "+name+" OWNER "+postgrestest.AppUser))
	return postgrestest.Address(strings.Join(p.Hosts(), ","), postgrestest.AppUser, postgrestest.AppPassword, name)
}

func (p *Postgres) sharedDatabase(tb testing.TB, name string) string {
	tb.Helper()
	Check(tb, runSQL(tb.Context(), p.admin, "CREATE DATABASE "+name))
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := runSQL(ctx, p.admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
	created, err := postgrestest.WithDatabase(p.admin, name)
	Check(tb, err)
	return created
}

// Through returns the URL of the same database at other addresses: those of proxies or poolers.
func (p *Postgres) Through(tb testing.TB, rawURL string, hosts ...string) string {
	tb.Helper()
	return postgrestest.At(tb, rawURL, strings.Join(hosts, ","))
}

// DirectAddress returns an address at which a client reaches a member even while that member is cut off
// from the others: an old primary still has clients on its side.
func (p *Postgres) DirectAddress(member int) string {
	at, _ := p.all[member].directAddr(context.Background()) // it is known: no engine is asked
	return at
}

// PgBouncer starts a PgBouncer in front of a member, for this test alone.
func (p *Postgres) PgBouncer(tb testing.TB, member int, mode string) *postgrestest.Pooler {
	tb.Helper()
	return postgrestest.PgBouncerAt(tb, p.DirectAddress(member), mode)
}

// adminURL is the URL of a member for the superuser.
func (p *Postgres) adminURL(member int) string {
	return postgrestest.Address(p.DirectAddress(member), postgrestest.AdminUser, postgrestest.AdminPassword, "postgres") + "&connect_timeout=5"
}

// SQL runs a statement on a member as the superuser.
func (p *Postgres) SQL(ctx context.Context, member int, statement string) error {
	return runSQL(ctx, p.adminURL(member), statement)
}

// runSQL runs a statement outside of a transaction, without a prepared statement.
func runSQL(ctx context.Context, at, statement string) error {
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	_, err = c.PgConn().Exec(ctx, statement).ReadAll()
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

// Restart starts a killed member, in the role that it had, and waits until it answers.
func (p *Postgres) Restart(ctx context.Context, member int) error {
	if err := p.servers.Restart(ctx, member); err != nil {
		return err
	}
	return retry(ctx, func() error { return p.SQL(ctx, member, "SELECT 1") })
}

// Promote makes a standby the primary. It returns when the member takes writes. Until another member
// follows it, its commits wait for no standby. What becomes of the old primary is up to the test: alone it
// acknowledges no commit, since its synchronous standby is gone.
func (p *Postgres) Promote(ctx context.Context, member int) error {
	return p.fault(ctx, "promote", member, func(_ server, ctx context.Context) error {
		if err := p.SQL(ctx, member, "SELECT pg_promote(true, 60)"); err != nil {
			return err
		}
		err := retry(ctx, func() error { return p.SQL(ctx, member, "BEGIN READ WRITE; ROLLBACK") })
		if err == nil {
			p.mu.Lock()
			p.primary = member
			p.mu.Unlock()
		}
		return err
	})
}

// Follow makes a member a new standby of the primary, whatever it was before, and returns when it streams.
// With synchronous, the primary's commits wait for this member alone, from the beginning: what was
// committed before is in the copy from which the standby begins.
func (p *Postgres) Follow(ctx context.Context, member int, synchronous bool) error {
	return p.fault(ctx, "make a standby of", member, func(m server, ctx context.Context) error {
		primary, name := p.Primary(), fmt.Sprint("member", member)
		if err := m.kill(ctx); err != nil {
			return err
		}
		want := "async"
		if synchronous {
			want = "sync"
			for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + name + "'", "SELECT pg_reload_conf()"} {
				if err := p.SQL(ctx, primary, statement); err != nil {
					return err
				}
			}
		}
		host, port, _ := strings.Cut(p.all[primary].addr(), ":")
		if err := p.order(ctx, member, fmt.Appendf(nil, "%s %s %s %d\n", host, port, name, followLines.Add(1))); err != nil {
			return err
		}
		if err := m.start(ctx); err != nil {
			return err
		}
		// A division by zero until it streams.
		return retry(ctx, func() error {
			return p.SQL(ctx, primary, "SELECT 1 / count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+want+
				"' AND application_name = '"+name+"'")
		})
	})
}

// Cancel ends the statements of clients on a member that a condition on pg_stat_activity selects, and the
// waits of their commits for a standby. function is pg_cancel_backend or pg_terminate_backend.
func (p *Postgres) Cancel(ctx context.Context, member int, function, condition string) error {
	return p.SQL(ctx, member, "SELECT "+function+"(pid) FROM pg_stat_activity WHERE usename = '"+postgrestest.AppUser+"' AND ("+condition+")")
}

// Waiting is the condition of [Postgres.Cancel] for commits that wait for a synchronous standby.
const Waiting = "wait_event = 'SyncRep'"
