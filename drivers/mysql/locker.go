package mysql

import (
	"context"
	"database/sql"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "mysql"

// DefaultTable is the name of the table, unless [WithTable] or the URL parameter table sets another.
const DefaultTable = "holdfast_locks"

const (
	defaultTimeout = 5 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = time.Minute
	poll           = time.Second
)

// Locker keeps locks in one table.
type Locker struct {
	*cas.Locker
	store *store
}

var _ driver.Checker = (*Locker)(nil)

// Option configures a Locker.
type Option func(*config)

type config struct {
	database  string // empty: that of the connection
	table     string
	timeout   time.Duration
	history   int
	logger    *slog.Logger
	onlyReads bool // makes no table, and needs none
	sent      func()
}

// WithTable sets the table of the locks, and its database. The default is [DefaultTable] in the database of the connection. The name of the
// table has 1 to 64 lower-case letters, digits and _: on some servers the case of letters matters, on others not.
func WithTable(database, table string) Option {
	return func(c *config) { c.database, c.table = database, table }
}

// WithCommandTimeout sets the time limit of each statement, from 100 ms to 1 min. The default is 5 s.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHistory sets how many past holders of a lock are kept. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithLogger sets the logger, which gets a line when the table is made. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

func onlyReads(c *config) { c.onlyReads = true }

var (
	validTable    = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
	validDatabase = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,64}$`)
)

func newConfig(opts []Option) (config, error) {
	c := config{table: DefaultTable, timeout: defaultTimeout, history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case !validTable.MatchString(c.table):
		return c, driver.Invalid(paramTable, driver.Quote(c.table), "1 to 64 lower-case letters, digits and _")
	case c.database != "":
		if err := checkDatabase(c.database); err != nil {
			return c, err
		}
	}
	switch {
	case c.timeout < minTimeout || c.timeout > maxTimeout:
		return c, driver.Invalid("command timeout", driver.FormatDuration(c.timeout), "from 100ms to 1m")
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	return c, driver.ValidateHistory("history", c.history)
}

func checkDatabase(name string) error {
	if !validDatabase.MatchString(name) {
		return driver.Invalid("database", "of the URL or option", "1 to 64 letters, digits and _$-")
	}
	return nil
}

// New makes a Locker on a program's own *sql.DB, which stays open after Close. It uses the connections of the pool: where others can use up
// all of them, or leave transactions open, give it a pool of its own with sql.OpenDB. The driver of the pool is that of
// github.com/go-sql-driver/mysql, also if it is wrapped.
func New(ctx context.Context, db *sql.DB, opts ...Option) (*Locker, error) {
	if db == nil {
		return nil, connectError(driver.Invalid("database", "nil", "a *sql.DB"))
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, &store{config: c, db: db})
}

// open makes a Locker.
func open(ctx context.Context, s *store) (*Locker, error) {
	l := &Locker{store: s}
	err := l.begin(ctx)
	if err != nil {
		_ = s.close(ctx)
		return nil, err
	}
	return l, nil
}

func (l *Locker) begin(ctx context.Context) (err error) {
	s := l.store
	config := cas.Config{Info: s.info(), Close: s.close, CallLimit: s.config.timeout}
	if s.config.onlyReads {
		config.ProbeRounds = -1
	} else {
		limited, cancel := context.WithTimeout(ctx, 3*s.config.timeout)
		defer cancel()
		if err := s.prepare(limited); err != nil {
			return connectError(err)
		}
		config.Info = s.info()
	}
	l.Locker, err = cas.Open(ctx, s, config)
	return err
}

// Info has that of [cas.Locker]. Of a Locker that only examines, Check finds out whether grants survive.
func (l *Locker) Info() driver.Info {
	info := l.Locker.Info()
	info.Failover = l.store.failover()
	return info
}

// Capabilities has those of [cas.Locker], with the checks of this driver.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// store is a [cas.Store].
type store struct {
	config config
	db     *sql.DB
	own    *dialer // how db connects, if it is the Locker's own

	server   atomic.Pointer[server]
	survives atomic.Bool

	mu       sync.Mutex
	identity string // that of the table, once it is known
}

func (s *store) failover() driver.Failover {
	if s.survives.Load() {
		return driver.GrantsSurvive
	}
	return driver.GrantsMayBeForgotten
}

func (s *store) info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: s.failover(), Modes: driver.Modes{Shared: true},
		History: s.config.history, Limits: driver.Limits{Poll: poll}}
}

// close ends the connections that belong to the Locker.
func (s *store) close(context.Context) error {
	if s.own == nil {
		return nil
	}
	s.own.end()
	return s.db.Close()
}
