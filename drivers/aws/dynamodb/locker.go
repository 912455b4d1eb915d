package dynamodb

import (
	"context"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

const backend = "dynamodb"

type settings struct {
	prefix   string
	history  int
	logger   *slog.Logger
	endpoint string // of the URL; else that of the configuration
	// elsewhere says that each machine's own configuration decides where the table is.
	elsewhere bool
	// rounds is how often Open races conditional writes. A negative number is for a Locker that only reads.
	rounds int
	// wrap, if not nil, makes the store of a test fail. sent, if not nil, is called for each request.
	wrap func(cas.Store) cas.Store
	sent func()
}

// Option sets up a Locker.
type Option func(*settings)

// WithPrefix sets what the keys of the items begin with, without the "/" at its end, such as "team-a/locks". The default is none. Locks
// with different prefixes have nothing to do with each other.
func WithPrefix(prefix string) Option { return func(c *settings) { c.prefix = prefix } }

// WithHistory sets how many past holders are kept with a lock: 0 to [driver.MaxHistory]. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

// WithLogger sets the logger, to which a table that is made is reported. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *settings) { c.logger = logger } }

// Locker is a [driver.Locker] that keeps locks in items. [cas.Locker] describes its methods.
type Locker struct {
	*cas.Locker
	store *store
}

// New makes a Locker with a program's own configuration, on a table, which it makes if there is none. Of the configuration it uses Region,
// Credentials, HTTPClient and the endpoint, and changes nothing in it: each request is made once, with a time limit of 5 s. It tries a
// few conditional writes; see [cas.Open].
func New(ctx context.Context, config aws.Config, table string, opts ...Option) (*Locker, error) {
	c := settings{history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return nil, err
	}
	if err := dynamo.CheckName("table", table); err != nil {
		return nil, err
	}
	if err := checkPrefix("prefix", c.prefix); err != nil {
		return nil, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return nil, err
	}
	if c.logger == nil {
		return nil, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	s, err := newStore(ctx, config, table, c)
	if err != nil {
		return nil, connectError(err)
	}
	if !s.onlyReads {
		if err := s.prepare(ctx, c); err != nil {
			s.Calls.Close()
			return nil, connectError(err)
		}
	}
	var used cas.Store = s
	if c.wrap != nil {
		used = c.wrap(s)
	}
	inner, err := cas.Open(ctx, used, cas.Config{
		Info:        driver.Info{Backend: backend, Expiry: driver.ByObservation, Failover: driver.GrantsSurvive, History: c.history},
		Close:       func(context.Context) error { s.Calls.Close(); return nil },
		ProbeRounds: c.rounds,
	})
	if err != nil {
		s.Calls.Close()
		return nil, err
	}
	return &Locker{inner, s}, nil
}

// newStore finds out where the table is.
func newStore(ctx context.Context, config aws.Config, table string, c settings) (*store, error) {
	at, err := dynamo.New(ctx, config, table, c.endpoint, c.sent)
	if err != nil {
		return nil, err
	}
	s := &store{Table: at, onlyReads: c.rounds < 0}
	if s.prefix = c.prefix; s.prefix != "" {
		s.prefix += "/"
	}
	s.Rights, s.Missing = rights, "correct its name or the region, or make it: "+s.createCommand()
	return s, nil
}

// Capabilities are those of the [cas.Locker], with a Checker of its own.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}
