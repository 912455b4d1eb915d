package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "redis"

const (
	defaultPrefix  = "holdfast:"
	defaultTimeout = 3 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = time.Minute
	maxReplicas    = 100
)

// Locker keeps locks in Redis or Valkey.
type Locker struct {
	*cas.Locker
	store *store
}

var _ driver.Checker = (*Locker)(nil)

// Option configures a Locker.
type Option func(*config)

type config struct {
	prefix    string
	timeout   time.Duration
	history   int
	replicas  int // negative: as many as the server has had
	onlyReads bool
	sentinel  *goredis.Client // made for this Locker, which closes it
	sent      func()
}

// WithPrefix sets what all keys and channels begin with: 1 to 100 letters, digits and :._-. The default is "holdfast:". Programs with
// the same prefix in the same database share their locks.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithCommandTimeout sets the time limit of each request, from 100 ms to 1 min. The default is 3 s. A grant waits for the replicas for
// half of it at most.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHistory sets how many past holders of a lock are kept. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithReplicas sets how many replicas the server has. A write is safe when a majority of them and the server has it. The default is
// the greatest number of replicas that this program has seen. 0 means that nothing waits for replicas.
func WithReplicas(n int) Option { return func(c *config) { c.replicas = n } }

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9:._-]{1,100}$`)

func newConfig(opts []Option) (config, error) {
	c := config{prefix: defaultPrefix, timeout: defaultTimeout, history: driver.DefaultHistory, replicas: -1}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case !validPrefix.MatchString(c.prefix):
		return c, driver.Invalid("prefix", driver.Quote(c.prefix), "1 to 100 letters, digits and :._-")
	case c.timeout < minTimeout || c.timeout > maxTimeout:
		return c, driver.Invalid("command timeout", driver.FormatDuration(c.timeout), "from 100ms to 1m")
	case c.replicas > maxReplicas:
		return c, driver.Invalid("number of replicas", strconv.Itoa(c.replicas), "from 0 to "+strconv.Itoa(maxReplicas))
	}
	return c, driver.ValidateHistory("history", c.history)
}

// New makes a Locker with the options of a program's own client of one server, or of [goredis.NewFailoverClient]: its addresses, login and
// TLS. It opens connections of its own, so that no other use of the client delays a renewal. The client stays open until after Close.
func New(ctx context.Context, client goredis.UniversalClient, opts ...Option) (*Locker, error) {
	own, is := client.(*goredis.Client)
	if !is || own == nil {
		return nil, connectError(driver.Invalid("client", "of another kind", "a *redis.Client of one server or of Sentinel"))
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, *own.Options(), c)
}

// open makes a Locker whose connections have these options.
func open(ctx context.Context, o goredis.Options, c config) (*Locker, error) {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // the Locker repeats calls, and knows its own writes
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.timeout, c.timeout, c.timeout, c.timeout
	if o.TLSConfig != nil && o.TLSConfig.MinVersion == 0 {
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	s := &store{client: goredis.NewClient(&o), config: c, db: o.DB}
	s.hub = &hub{store: s}
	l := &Locker{store: s}
	config := cas.Config{
		Info: s.info(), Watch: s.hub.watch, Close: s.close, CallLimit: c.timeout,
	}
	if c.onlyReads {
		config.ProbeRounds = -1
	}
	var err error
	if l.Locker, err = cas.Open(ctx, s, config); err != nil {
		_ = s.close(ctx)
		return nil, err
	}
	return l, nil
}

// Capabilities has those of [cas.Locker], with the checks of this driver.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// store is a [cas.Store].
type store struct {
	client *goredis.Client
	config config
	db     int
	hub    *hub
	calls  sync.WaitGroup

	replicas  atomic.Int64 // the greatest number that was seen
	learnedAt atomic.Int64 // when, in nanoseconds since 1970
}

func (s *store) info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten, Modes: driver.Modes{Shared: true},
		History: s.config.history}
}

// close ends all connections, and waits for what uses them.
func (s *store) close(context.Context) error {
	s.hub.close()
	err := s.client.Close()
	if s.config.sentinel != nil {
		err = errors.Join(err, s.config.sentinel.Close())
	}
	s.calls.Wait()
	return err
}
