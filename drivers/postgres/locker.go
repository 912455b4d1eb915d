package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const backend = "postgres"

// limits: a name, of which zero bytes take two bytes, must fit into an entry of an index. Data are small enough not to
// burden replication. A TTL below a tenth of a second would be spent waiting for a synchronous standby.
var limits = driver.Limits{
	MinTTL:   100 * time.Millisecond,
	MaxTTL:   24 * time.Hour,
	TTLStep:  time.Millisecond,
	MaxName:  1024,
	MaxOwner: 1024,
	MaxData:  1 << 20,
	Poll:     time.Second,
}

// Locker keeps locks in one table. It is a [driver.Locker] with every capability and is safe for concurrent use.
type Locker struct {
	pool            *pgxpool.Pool // its own
	config          config
	sql             *statements
	id              string      // in queues
	survives        atomic.Bool // commits wait for a synchronous standby
	slots           slots
	unprepared      atomic.Bool
	conns           connections
	cluster         cluster
	follower        *waitqueue.Follower
	warned          atomic.Bool           // that nothing wakes waiters
	readListenFiles func(*pgx.ConnConfig) // those of the URL of config.listen

	calls *driverutil.Calls // Close interrupts them
	done  chan struct{}     // closed when they have ended, and the connections
}

var _ driver.Locker = (*Locker)(nil)

type config struct {
	timeout time.Duration
	history int
	table   tableName
	logger  *slog.Logger
	listen  *pgx.ConnConfig // of the connection that listens; nil for that of the pool
	sent    func()          // called for each request to the server; may be nil
	byURL   bool            // nothing has changed what was read from the URL

	onlyReads bool // makes no table, and needs none ([driver.OpenForReading], [driver.OpenForCheck])
}

// Option configures a Locker.
type Option func(*config)

// WithCommandTimeout limits the duration of each request of a call whose context has no earlier deadline. A call that meets a row that
// is locked makes a second request, and can wait a second before it. The default is 10 s, the minimum 1 ms.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHistory sets how many past holders are kept in a lock's row: 0 to [driver.MaxHistory]. The default is
// [driver.DefaultHistory]. The last grant decides, so the processes of one table should have the same number.
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithTable sets the table of the locks. Without a schema it is that of the search path that has the table, or the
// first one. The default is [DefaultTable] without a schema.
func WithTable(schema, name string) Option {
	return func(c *config) { c.table = tableName{schema, name} }
}

// WithLogger sets the logger for warnings. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

func newConfig(opts []Option) (config, error) {
	c := config{timeout: 10 * time.Second, history: driver.DefaultHistory, table: tableName{"", DefaultTable}, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case c.timeout < time.Millisecond:
		return c, driver.Invalid("command timeout", c.timeout.String(), "at least 1ms")
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	err := cmp.Or(driver.ValidateHistory(driver.ParamHistory, c.history), checkIdentifier(paramTable, c.table.name))
	if c.table.schema != "" {
		err = cmp.Or(err, checkIdentifier(paramSchema, c.table.schema))
	}
	return c, err
}

// checkIdentifier refuses what the server would cut or refuse, and typos: the table is made if it is missing.
func checkIdentifier(field, name string) error {
	const longest = 63
	if name == "" || len(name) > longest {
		return driver.Invalid(field, driver.Quote(name), fmt.Sprintf("a name of 1 to %d bytes", longest))
	}
	return driver.ValidatePlace(field, name, "")
}

// maxConnections is how many connections a Locker has that New or NewDB makes. Renewals are sent in batches.
const maxConnections = 4

// New returns a Locker that connects as the pool does: with its hosts, credentials, TLS, tracer, and hooks for new connections, whose
// context has no values. Hooks for those that borrow a connection (ShouldPing, PrepareConn and so on) are not called. It has
// connections of its own, at most 4 and not more than the pool may have, and one more while somebody waits. So a program
// that has used up its pool can still renew its locks. New checks the server, and makes the table if there is none, all
// within ctx. The pool may be closed before the Locker.
func New(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Locker, error) {
	if pool == nil {
		return nil, connectError(driver.Invalid("pool", "nil", "a *pgxpool.Pool"))
	}
	return newWith(ctx, pool.Config(), opts)
}

// NewDB is [New] for a database of package database/sql that was opened with pgx's driver, "pgx". It takes the settings
// from one of its connections. A program whose password changes gives New a pool with BeforeConnect instead.
func NewDB(ctx context.Context, db *sql.DB, opts ...Option) (*Locker, error) {
	if db == nil {
		return nil, connectError(driver.Invalid("database", "nil", "a *sql.DB"))
	}
	config, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	limited, cancel := context.WithTimeout(ctx, config.timeout)
	defer cancel()
	conn, err := db.Conn(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, connectError(fmt.Errorf("no connection of the database was free or could be made within %v: %w",
			config.timeout, limited.Err()))
	}
	if err = withoutString(err); errors.Is(err, driver.ErrInvalid) {
		return nil, connectError(err)
	}
	if err != nil {
		return nil, connectError(errors.New(textOf(err)))
	}
	defer conn.Close() //nolint:errcheck // it goes back to the program's pool
	var dial *pgx.ConnConfig
	err = conn.Raw(func(c any) error {
		own, ok := c.(*stdlib.Conn)
		if !ok {
			return driver.Invalid("driver of the database", fmt.Sprintf("%T", c), "that of github.com/jackc/pgx/v5/stdlib")
		}
		dial = own.Conn().Config()
		return nil
	})
	if err != nil {
		return nil, connectError(err)
	}
	poolConfig, err := pgxpool.ParseConfig("host=localhost user=holdfast sslmode=disable") // only New's defaults of a pool are used
	if err != nil {
		return nil, connectError(errors.New("a variable such as PGSERVICE is not valid"))
	}
	poolConfig.ConnConfig = dial
	return newWith(ctx, poolConfig, opts)
}

func newWith(ctx context.Context, poolConfig *pgxpool.Config, opts []Option) (*Locker, error) {
	poolConfig.MaxConns = min(poolConfig.MaxConns, maxConnections)
	poolConfig.MinConns = 0
	l, err := newLocker(poolConfig, opts)
	if err != nil {
		return nil, err
	}
	return l.begin(ctx)
}

func connectError(err error) error { return opError("connect", "", err) }

// newLocker returns a Locker that has sent nothing.
func newLocker(poolConfig *pgxpool.Config, opts []Option) (*Locker, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	l := &Locker{config: config, sql: statementsFor(config.table, config.history), id: rand.Text(),
		calls: driverutil.NewCalls(), done: make(chan struct{})}
	dial := poolConfig.ConnConfig
	if err := driver.ValidatePlace("database", dial.Database, ""); err != nil { // of the URL, or of PGDATABASE
		return nil, connectError(err)
	}
	if dial.RuntimeParams["application_name"] == "" {
		dial.RuntimeParams["application_name"] = "holdfast"
	}
	configure(dial, config.timeout)
	dial.ValidateConnect = l.cluster.checked(dial.ValidateConnect)
	dial.OnNotification = nil // of the program's own notifications; pgx would give it those of the Locker
	theirs := dial.OnNotice
	dial.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		noteWarning(c, n)
		if theirs != nil {
			theirs(c, n)
		}
	}
	if config.sent != nil {
		dial.Tracer = tracer{config.sent}
	}
	l.setHooks(poolConfig)
	l.readListenFiles = func(*pgx.ConnConfig) {}
	if config.listen != nil {
		configure(config.listen, config.timeout)
		l.readListenFiles = rereads(config.listen, true)
	}
	pool, err := pgxpool.NewWithConfig(l.calls.Context(), poolConfig)
	if err != nil {
		l.calls.Interrupt()
		return nil, connectError(errors.New(textOf(err)))
	}
	l.pool = pool
	l.slots = newSlots(int(poolConfig.MaxConns))
	l.follower = l.newFollower()
	return l, nil
}

// begin checks the server and makes the Locker ready for use.
func (l *Locker) begin(ctx context.Context) (*Locker, error) {
	if err := l.do(ctx, "connect", "", nil, l.prepare); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// Info implements [driver.Locker]. Grants survive a fail-over if the server had synchronous standbys when the Locker was
// made, and the table was not UNLOGGED.
func (l *Locker) Info() driver.Info {
	info := driver.Info{Backend: backend, Limits: limits, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten,
		Free: driver.FreeRecord{Token: true, Data: true, History: true}, History: l.config.history, Turn: driver.TurnLength, WakesOnlyQueue: true}
	if l.survives.Load() {
		info.Failover = driver.GrantsSurvive
	}
	return info
}

// Capabilities implements [driver.Locker]. The driver has every capability.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Waker: l, Queue: l, BatchRenewer: l, BatchReleaser: l, BatchInspector: l, Lister: l, Breaker: l,
		DataStore: l, Checker: l}
}

// Close implements [driver.Locker]. It interrupts running calls, and closes the Locker's connections.
func (l *Locker) Close(ctx context.Context) error {
	ended, first := l.calls.Shut()
	if first {
		l.calls.Interrupt() // calls that are under way end with an unknown outcome
		l.follower.Shut()
		go func() {
			<-ended
			l.pool.Close()
			close(l.done)
		}()
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	// Connections are closed at once, and their calls have ended. A moment is enough on a machine that is not busy.
	select {
	case <-l.done:
		return nil
	case <-time.After(100 * time.Millisecond):
		return opError("close", "", fmt.Errorf("connections are still being closed: %w", ctx.Err()))
	}
}
