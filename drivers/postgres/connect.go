package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connections is what a Locker knows of those of its pool.
type connections struct {
	life, jitter time.Duration // after which one is replaced

	mu     sync.Mutex
	made   time.Time // when the latest one was made
	trying bool      // whether a new one can be made
	next   time.Time // when to try again
	failed bool      // the latest try
}

const (
	// oldAt is where a connection notes when it is to be replaced.
	oldAt = "holdfast.old"
	// retryReplacing is how long no new connection is tried after one could not be made.
	retryReplacing = time.Minute
	// forever is the lifetime for a pool that closes no connection by its age.
	forever = 100 * 365 * 24 * time.Hour
)

// bare is a context without values. A connection outlives the request in which it is made, so its hooks get none of it: a
// hook that needs one fails in [New] and not in a renewal.
type bare struct{ context.Context }

// Value implements [context.Context].
func (bare) Value(any) any { return nil }

// setHooks sets how the Locker's pool connects: by the program's hooks for new connections, each with a time limit. Hooks for those
// that borrow a connection are the program's: they may need what a request's context has, which a renewal's does not.
func (l *Locker) setHooks(c *pgxpool.Config) {
	before, after := c.BeforeConnect, c.AfterConnect
	c.ShouldPing, c.PrepareConn, c.BeforeAcquire, c.AfterRelease = nil, nil, nil, nil //nolint:staticcheck // programs may set old ones
	l.conns.life, l.conns.jitter, c.MaxConnLifetime = c.MaxConnLifetime, c.MaxConnLifetimeJitter, forever
	readFiles := rereads(c.ConnConfig, l.config.byURL)
	c.BeforeConnect = func(ctx context.Context, dial *pgx.ConnConfig) error {
		if l.unprepared.Load() && dial.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
			dial.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		readFiles(dial)
		if before == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
		defer cancel()
		return hookError("BeforeConnect", before(ctx, dial))
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
			defer cancel()
			if err := after(ctx, conn); err != nil {
				return hookError("AfterConnect", err)
			}
		}
		l.conns.add(conn)
		return nil
	}
}

func hookError(hook string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the pool's %s, whose context has no values: %w", hook, err)
}

// rereads returns a function that reads again the files of a connection string, as libpq does for each connection: they may have
// another password or certificate by now. A password that the program has set, or a variable, stays. So do certificates, unless the
// string alone decides about them.
func rereads(dial *pgx.ConnConfig, certificates bool) func(*pgx.ConnConfig) {
	first, err := pgconn.ParseConfig(dial.ConnString())
	if err != nil || os.Getenv("PGPASSWORD") != "" || first.Password != dial.Password {
		return func(*pgx.ConnConfig) {}
	}
	return func(c *pgx.ConnConfig) {
		now, err := pgconn.ParseConfig(c.ConnString())
		if err != nil || now.Host != c.Host || now.Port != c.Port || now.Database != c.Database || now.User != c.User {
			return // a file is being written, or a variable has changed
		}
		if now.Password != "" {
			c.Password = now.Password
		}
		if certificates && (now.TLSConfig == nil) == (c.TLSConfig == nil) && slices.EqualFunc(now.Fallbacks, c.Fallbacks, sameServer) {
			c.TLSConfig, c.Fallbacks = now.TLSConfig, now.Fallbacks
		}
	}
}

// sameServer reports whether two connections differ in nothing but their certificates.
func sameServer(a, b *pgconn.FallbackConfig) bool {
	return a.Host == b.Host && a.Port == b.Port && (a.TLSConfig == nil) == (b.TLSConfig == nil)
}

// add notes a connection that was just made.
func (c *connections) add(conn *pgx.Conn) {
	now, life := time.Now(), c.life
	if c.jitter > 0 {
		life += rand.N(c.jitter)
	}
	conn.PgConn().CustomData()[oldAt] = now.Add(life)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = now
}

// madeAfter reports whether a connection was made after a time.
func (c *connections) madeAfter(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made.After(t)
}

// begins reports whether to find out now whether a new connection can be made.
func (c *connections) begins() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trying || time.Now().Before(c.next) {
		return false
	}
	c.trying = true
	return true
}

// tried notes a result of that, and returns whether the one before was another.
func (c *connections) tried(err error) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying, c.next = false, time.Now().Add(retryReplacing)
	changed = c.failed != (err != nil)
	c.failed = err != nil
	return changed
}

// retire closes a connection that is old, if another was made since. Otherwise it finds out whether one can be: the
// password may have changed, or the server may be full, and an old connection that works still renews leases.
func (l *Locker) retire(ctx context.Context, conn *pgx.Conn) {
	old, _ := conn.PgConn().CustomData()[oldAt].(time.Time)
	switch {
	case time.Now().Before(old):
	case l.conns.madeAfter(old):
		_ = conn.Close(ctx)
	case l.conns.begins():
		l.calls.Go(l.tryNew)
	}
}

// tryNew makes a connection as the pool does, and closes it.
func (l *Locker) tryNew() {
	ctx, cancel := context.WithTimeout(l.calls.Context(), l.config.timeout)
	defer cancel()
	conn, err := l.dial(ctx)
	if err == nil {
		err = l.pool.Config().AfterConnect(ctx, conn)
		closeConn(conn)
	}
	if changed := l.conns.tried(err); err != nil && l.calls.Context().Err() == nil {
		level := slog.LevelDebug
		if changed {
			level = slog.LevelWarn
		}
		l.config.logger.Log(ctx, level, "holdfast: no new connection can be made, an old one stays in use",
			"backend", backend, "error", textOf(err))
	}
}

// dial connects as the pool does, without its AfterConnect.
func (l *Locker) dial(ctx context.Context) (*pgx.Conn, error) {
	own := l.pool.Config()
	if err := own.BeforeConnect(ctx, own.ConnConfig); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, own.ConnConfig)
}

// closeConn closes a connection that has no call.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// hostTimeout is how long a host of several has for a connection; pgx gives it two minutes, in which the others are not tried.
const hostTimeout = 3 * time.Second

// configure sets what a connection needs. Of several servers it chooses the primary, and goes on to the next one after a host
// that does not answer, unless the URL says otherwise. A single host has as long as the call that waits for it: the pool goes on
// without the call, and one that hangs would keep its place from those that would succeed.
func configure(dial *pgx.ConnConfig, timeout time.Duration) {
	for fixed, value := range map[string]string{
		"client_encoding": "UTF8",     // Promise 1: a name is the same lock for all programs, whatever the encoding of their users is
		"datestyle":       "ISO, MDY", // the only style that pgx reads, as servers report it: poolers compare the texts
	} {
		maps.DeleteFunc(dial.RuntimeParams, func(name, _ string) bool { return strings.EqualFold(name, fixed) })
		dial.RuntimeParams[fixed] = value
	}
	if severalHosts(dial) {
		timeout = hostTimeout
		if dial.ValidateConnect == nil {
			dial.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
		}
	}
	if dial.ConnectTimeout == 0 {
		dial.ConnectTimeout = timeout
	}
	// pgx looks up all names before it connects to the first address, without a limit.
	lookUp, limit := dial.LookupFunc, dial.ConnectTimeout
	dial.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return lookUp(ctx, host)
	}
}

// severalHosts reports whether there is more than one server to connect to. Other fallbacks are those of TLS.
func severalHosts(dial *pgx.ConnConfig) bool {
	return slices.ContainsFunc(dial.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != dial.Host || f.Port != dial.Port })
}
