package nats

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "nats"

const (
	defaultTimeout = 3 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = time.Minute
)

// Locker keeps locks in one bucket. [cas.Locker] describes its methods.
type Locker struct {
	*cas.Locker
	store *store
}

var _ driver.Checker = (*Locker)(nil)

// Option sets up a Locker.
type Option func(*settings)

type settings struct {
	bucket   string
	timeout  time.Duration
	history  int
	replicas int // of a bucket that is made; 0: 3 in a cluster, else 1
	inbox    string
	logger   *slog.Logger
	rounds   int                       // how often Open races conditional writes; negative: the Locker only reads, and makes no bucket
	sent     func()                    // called for each request, if not nil
	wrap     func(cas.Store) cas.Store // makes the store of a test fail, if not nil
}

// WithRequestTimeout sets the time limit of each request, from 100 ms to 1 min. The default is 3 s.
func WithRequestTimeout(d time.Duration) Option { return func(c *settings) { c.timeout = d } }

// WithHistory sets how many past holders are kept with a lock: 0 to [driver.MaxHistory]. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

// WithReplicas sets how many servers keep the bucket, if this Locker makes it: 1, 3 or 5. The default is 3 in a cluster, and else 1.
func WithReplicas(n int) Option { return func(c *settings) { c.replicas = n } }

// WithInboxPrefix sets what the subjects of answers begin with, for a user who may not subscribe to _INBOX.>. The default of [New] is that
// of the program's connection.
func WithInboxPrefix(prefix string) Option { return func(c *settings) { c.inbox = prefix } }

// WithLogger sets the logger, which gets a line when the bucket is made. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *settings) { c.logger = logger } }

func onlyReads(c *settings) { c.rounds = -1 }

var (
	validBucket = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	validInbox  = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
)

func newSettings(bucket string, opts []Option) (settings, error) {
	c := settings{bucket: bucket, timeout: defaultTimeout, history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	switch {
	case !validBucket.MatchString(c.bucket):
		return c, driver.Invalid("bucket", driver.QuoteName(c.bucket), "1 to 100 letters, digits and _-")
	case c.timeout < minTimeout || c.timeout > maxTimeout:
		return c, driver.Invalid("request timeout", driver.FormatDuration(c.timeout), "from 100ms to 1m")
	case !slices.Contains([]int{0, 1, 3, 5}, c.replicas):
		return c, driver.Invalid("number of replicas", strconv.Itoa(c.replicas), "1, 3 or 5")
	case c.inbox != "" && (len(c.inbox) > 100 || !validInbox.MatchString(c.inbox)):
		return c, driver.Invalid("inbox prefix", driver.QuoteName(c.inbox), "letters, digits and _-, in parts that . separates")
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	return c, driver.ValidateHistory("history", c.history)
}

// New makes a Locker with the options of a program's own connection: its servers (not those that a cluster has announced), login, dialer
// and TLS. It opens a connection of its own, so that no other use delays a renewal, and no write is sent late: the program's connection may
// keep what is published while it reconnects. The program's connection stays open. New tries a few conditional writes; see [cas.Open].
func New(ctx context.Context, conn *natsgo.Conn, bucket string, opts ...Option) (*Locker, error) {
	if conn == nil {
		return nil, connectError(driver.Invalid("connection", "nil", "a *nats.Conn"))
	}
	c, err := newSettings(bucket, opts)
	if err != nil {
		return nil, connectError(err)
	}
	return open(ctx, conn.Opts, c)
}

// open makes a Locker.
func open(ctx context.Context, o natsgo.Options, c settings) (*Locker, error) {
	link, err := connect(ctx, o, c)
	if err != nil {
		return nil, connectError(err)
	}
	s := &store{settings: c, link: link}
	if c.rounds >= 0 {
		if err := s.prepare(ctx); err != nil {
			link.close()
			return nil, connectError(err)
		}
	}
	if err := s.compareHosts(ctx); err != nil {
		link.close()
		return nil, connectError(err)
	}
	var used cas.Store = s
	if c.wrap != nil {
		used = c.wrap(s)
	}
	inner, err := cas.Open(ctx, used, s.config())
	if err != nil {
		link.close()
		return nil, err
	}
	return &Locker{inner, s}, nil
}

// Capabilities are those of the [cas.Locker], with a Checker of its own.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// info declares what the bucket promises. No client can see whether the servers sync each write.
func (s *store) config() cas.Config {
	return cas.Config{Info: s.info(), Watch: s.watch, Close: s.close, ProbeRounds: s.rounds, ProbeValue: s.probeValue(),
		CallLimit: s.timeout + time.Second} // so that an error says which request had no answer
}

func (s *store) info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten, Modes: driver.Modes{Shared: true},
		History: s.history}
}

func (s *store) close(context.Context) error {
	s.link.close()
	return nil
}
