package env

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/test/postgrestest"
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
	admin   string           // URL of the only server; empty if there are members
	members []postgresMember // none if the server outlives the test

	mu      sync.Mutex
	primary int
}

// postgresMember is a server that faults can be injected into.
type postgresMember interface {
	kill(ctx context.Context) error
	restart(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	cutOff(ctx context.Context) error
	rejoin(ctx context.Context) error
	// follow makes a stopped server begin as a new standby of the server at host and port when it is next started.
	follow(ctx context.Context, host, port, name string) error
	addr() string       // where the other members and clients reach it, host:port
	directAddr() string // where clients reach it that are cut off with it
	terminate() error
}

// StartPostgres starts servers for this test alone and removes them at the end. It waits while three other
// tests have servers of several members.
func StartPostgres(tb testing.TB, opts PostgresOptions) *Postgres {
	tb.Helper()
	if suite.mode == Endpoints {
		skip(tb, "it injects faults into servers, which is not done to a user's own: it needs containers or processes")
	}
	replicaSetLimit <- struct{}{}
	tb.Cleanup(func() { <-replicaSetLimit })
	start := startPostgresContainers
	if suite.mode == Processes {
		start = startPostgresProcesses
	}
	p := &Postgres{}
	members := 2
	if opts.Asynchronous {
		members = 3
	}
	servers, err := start(tb.Context(), tb.TempDir(), members)
	p.members = servers.members
	tb.Cleanup(func() {
		if err := servers.terminate(); err != nil {
			tb.Error(err)
		}
	})
	if err == nil {
		err = p.replicate(tb.Context())
	}
	Check(tb, err)
	for i, m := range p.members {
		fmt.Printf("integration: %s: PostgreSQL member %d is at %s\n", tb.Name(), i, m.addr())
	}
	countUse()
	return p
}

// postgresServers are the members and what they share.
type postgresServers struct {
	members   []postgresMember
	terminate func() error
}

// replicate makes the user of the tests, and the standbys.
func (p *Postgres) replicate(ctx context.Context) error {
	err := p.SQL(ctx, 0, "CREATE ROLE "+postgrestest.AppUser+" LOGIN PASSWORD '"+postgrestest.AppPassword+"'")
	for member := 1; member < len(p.members) && err == nil; member++ {
		err = p.Follow(ctx, member, member == 1)
	}
	return err
}

// SharedPostgres returns a server without standbys that all tests of the package share, and in containers
// those of all packages. They inject faults only through proxies of their own.
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	return suite.postgres.get(tb, func() (*Postgres, func() error, error) {
		switch suite.mode {
		case Endpoints:
			admin := os.Getenv(postgrestest.EnvURL)
			if admin == "" {
				return nil, nil, fmt.Errorf("%w: %s is not set", ErrUnsupported, postgrestest.EnvURL)
			}
			return &Postgres{admin: admin}, nil, nil
		case Containers:
			c := holdfastcontainers.Postgres(tb, holdfastcontainers.WithImage(PostgresImage()))
			fmt.Printf("integration: shared: PostgreSQL of %s at %s\n", PostgresImage(), c.Host)
			admin, err := withPath(c.URL, "postgres")
			return &Postgres{admin: admin}, nil, err
		}
		s, err := postgrestest.New(context.Background(), suite.dir, postgrestest.Options{Settings: map[string]string{"max_connections": "500"}})
		if err != nil {
			return nil, nil, err
		}
		return &Postgres{admin: s.AdminURL("")}, s.Remove, nil
	})
}

func withPath(rawURL, database string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", errors.New("this is no URL of a database") // the error would show the password
	}
	u.Path = "/" + database
	return u.String(), nil
}

// Hosts returns the addresses of the members, in order.
func (p *Postgres) Hosts() []string {
	if p.members == nil {
		u, err := url.Parse(p.admin)
		if err != nil {
			return nil
		}
		return strings.Split(u.Host, ",")
	}
	var hosts []string
	for _, m := range p.members {
		hosts = append(hosts, m.addr())
	}
	return hosts
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
	if p.members == nil {
		return p.sharedDatabase(tb, name)
	}
	Check(tb, p.SQL(tb.Context(), p.Primary(), "CREATE DATABASE "+name+" OWNER "+postgrestest.AppUser))
	return p.at(name, p.Hosts())
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
	own, err := withPath(p.admin, name)
	Check(tb, err)
	return own
}

// at is the URL of a database at hosts, for the user of the tests.
func (p *Postgres) at(database string, hosts []string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(postgrestest.AppUser, postgrestest.AppPassword), Host: strings.Join(hosts, ","),
		Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Through returns the URL of the same database at other addresses: those of proxies or poolers.
func (p *Postgres) Through(tb testing.TB, rawURL string, hosts ...string) string {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatal("this is no URL of a database")
	}
	u.Host = strings.Join(hosts, ",")
	return u.String()
}

// DirectAddress returns an address at which a client reaches a member even while that member is cut off
// from the others: an old primary still has clients on its side.
func (p *Postgres) DirectAddress(member int) string { return p.members[member].directAddr() }

// PgBouncer starts a PgBouncer in front of a member, for this test alone.
func (p *Postgres) PgBouncer(tb testing.TB, member int, mode string) *postgrestest.Pooler {
	tb.Helper()
	return postgrestest.PgBouncerAt(tb, p.DirectAddress(member), mode)
}

// adminURL is the URL of a member for the superuser.
func (p *Postgres) adminURL(member int) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(postgrestest.AdminUser, postgrestest.AdminPassword),
		Host: p.DirectAddress(member), Path: "/postgres", RawQuery: "sslmode=disable&connect_timeout=5"}
	return u.String()
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

// Kill ends a member like a crash (SIGKILL). It may be stopped already.
func (p *Postgres) Kill(ctx context.Context, member int) error {
	return p.fault(ctx, "kill", member, postgresMember.kill)
}

// Restart starts a killed member, in the role that it had, and waits until it answers.
func (p *Postgres) Restart(ctx context.Context, member int) error {
	return p.fault(ctx, "restart", member, func(m postgresMember, ctx context.Context) error {
		if err := m.restart(ctx); err != nil {
			return err
		}
		return p.awaitAnswer(ctx, member)
	})
}

// Pause freezes a member: connections stay open, but nothing answers.
func (p *Postgres) Pause(ctx context.Context, member int) error {
	return p.fault(ctx, "pause", member, postgresMember.pause)
}

// Resume ends a Pause.
func (p *Postgres) Resume(ctx context.Context, member int) error {
	return p.fault(ctx, "resume", member, postgresMember.resume)
}

// CutOff disconnects a member from the network of the others: neither they nor clients of [Postgres.URL]
// can reach it. Clients of [Postgres.DirectAddress] can.
func (p *Postgres) CutOff(ctx context.Context, member int) error {
	return p.fault(ctx, "cut off", member, postgresMember.cutOff)
}

// Rejoin ends a CutOff, also of a member that is stopped.
func (p *Postgres) Rejoin(ctx context.Context, member int) error {
	return p.fault(ctx, "rejoin", member, postgresMember.rejoin)
}

// Promote makes a standby the primary. It returns when the member takes writes. Until another member
// follows it, its commits wait for no standby. What becomes of the old primary is up to the test: alone it
// acknowledges no commit, since its synchronous standby is gone.
func (p *Postgres) Promote(ctx context.Context, member int) error {
	return p.fault(ctx, "promote", member, func(_ postgresMember, ctx context.Context) error {
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
	return p.fault(ctx, "make a standby of", member, func(m postgresMember, ctx context.Context) error {
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
		host, port, _ := strings.Cut(p.members[primary].addr(), ":")
		if err := m.follow(ctx, host, port, name); err != nil {
			return err
		}
		if err := m.restart(ctx); err != nil {
			return err
		}
		// A division by zero until it streams.
		return retry(ctx, func() error {
			return p.SQL(ctx, primary, "SELECT 1 / count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+want+
				"' AND application_name = '"+name+"'")
		})
	})
}

// awaitAnswer waits until a member, primary or standby, answers statements.
func (p *Postgres) awaitAnswer(ctx context.Context, member int) error {
	return retry(ctx, func() error { return p.SQL(ctx, member, "SELECT 1") })
}

// Cancel ends the statements of clients on a member that a condition on pg_stat_activity selects, and the
// waits of their commits for a standby. function is pg_cancel_backend or pg_terminate_backend.
func (p *Postgres) Cancel(ctx context.Context, member int, function, condition string) error {
	return p.SQL(ctx, member, "SELECT "+function+"(pid) FROM pg_stat_activity WHERE usename = '"+postgrestest.AppUser+"' AND ("+condition+")")
}

// Waiting is the condition of [Postgres.Cancel] for commits that wait for a synchronous standby.
const Waiting = "wait_event = 'SyncRep'"

func (p *Postgres) fault(ctx context.Context, what string, member int, do func(postgresMember, context.Context) error) error {
	if p.members == nil {
		return fmt.Errorf("%s member %d of a server that others use: %w", what, member, ErrUnsupported)
	}
	if err := do(p.members[member], ctx); err != nil {
		return fmt.Errorf("%s PostgreSQL member %d: %w", what, member, err)
	}
	return nil
}
