package kubernetes

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

const backend = "kubernetes"

type settings struct {
	prefix  string
	history int
	// rounds is how often Open races conditional writes. A negative number is for a Locker that only reads.
	rounds int
	// elapsed is the clock to which that of the API server is compared; nil is the process's.
	elapsed func() time.Duration
	// wrap, if not nil, makes the store of a test fail. sent, if not nil, is called for each request.
	wrap func(cas.Store) cas.Store
	sent func()
}

// Option sets up a Locker.
type Option func(*settings)

// WithPrefix sets what the names of the Leases begin with. The default is nothing: a lock and an elector of one name exclude each
// other. Locks with different prefixes have nothing to do with each other.
func WithPrefix(prefix string) Option { return func(c *settings) { c.prefix = prefix } }

// WithHistory sets how many past holders are kept with a lock: 0 to [driver.MaxHistory]. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

func onlyReads(c *settings) { c.rounds = -1 }

// Locker is a [driver.Locker] that keeps locks in Leases. [cas.Locker] describes its methods.
type Locker struct {
	*cas.Locker
	store   *store
	closing context.Context // ends with Close
	cancel  context.CancelFunc
}

// callLimit is the time limit of one call of the store.
const callLimit = 5 * time.Second

// New makes a Locker with a program's own configuration, on a namespace. It changes nothing in the configuration, and does not use
// its rate limit and its Timeout: each call has a time limit of 5 s. It tries a few conditional writes; see [cas.Open].
func New(ctx context.Context, config *rest.Config, namespace string, opts ...Option) (*Locker, error) {
	c := settings{history: driver.DefaultHistory}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return nil, err
	}
	if config == nil {
		return nil, driver.Invalid("config", "nil", "a *rest.Config")
	}
	if err := checkNamespace("namespace", namespace); err != nil {
		return nil, err
	}
	if err := checkPrefix("prefix", c.prefix); err != nil {
		return nil, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return nil, err
	}
	server, requests, watches, closeIdle, err := connect(config)
	if err != nil {
		return nil, connectError(err)
	}
	done := func(context.Context) error { closeIdle(); return nil }
	s := &store{requests: requests, watches: watches, server: server, namespace: namespace, prefix: c.prefix,
		clocks: httpstore.NewClocks(c.elapsed), slots: make(chan struct{}, maxRequests), closeIdle: closeIdle, sent: c.sent,
		limit: callLimit}
	var used cas.Store = s
	if c.wrap != nil {
		used = c.wrap(s)
	}
	inner, err := cas.Open(ctx, used, s.config(c, done))
	if err != nil {
		_ = done(ctx)
		return nil, err
	}
	return newLocker(inner, s), nil
}

func newLocker(inner *cas.Locker, s *store) *Locker {
	l := &Locker{Locker: inner, store: s}
	l.closing, l.cancel = context.WithCancel(context.Background())
	return l
}

// config describes the store. A grant is acknowledged when a majority of etcd has it.
func (s *store) config(c settings, done func(context.Context) error) cas.Config {
	return cas.Config{
		Info: driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsSurvive, History: c.history,
			Limits: driver.Limits{MinTTL: 5 * time.Second, TTLNote: "the API server's clock has steps of a second"}},
		ClockStep: httpstore.DateStep,
		CallLimit: s.limit,
		Watch:     s.watch,
		// A position in the Lease would cost a write of each waiter, and the holder's next renewal a read.
		Unordered:   true,
		Close:       done,
		ProbeRounds: c.rounds,
		ProbeValue:  "the Lease " + leaseName(s.prefix, cas.ProbeKey),
	}
}

// Capabilities are those of the [cas.Locker], with a Checker of its own.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}

// Close implements [driver.Locker]. It ends what Check has under way, and waits for the other calls.
func (l *Locker) Close(ctx context.Context) error {
	l.cancel()
	return l.Locker.Close(ctx)
}
