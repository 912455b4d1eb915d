package azblob

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const backend = "azblob"

// limits: the service has leases of 15 to 60 whole seconds. A blob's name has at most 1024
// characters. A byte of the lock's name takes up to three of them (see [escape]), the prefix
// the rest. The owner, which can also get three times as long, must fit into a blob's metadata
// of 8 KiB.
var limits = driver.Limits{
	MinTTL:   15 * time.Second,
	MaxTTL:   60 * time.Second,
	TTLStep:  time.Second,
	TTLNote:  "the limits of Azure's blob leases; with MongoDB it is 100ms to 24h, with a folder 10ms to 1 year",
	MaxName:  256,
	MaxOwner: 1024,
	MaxData:  8 << 20,
	Poll:     5 * time.Second,
}

// defaultRequestTimeout is the time limit of one request.
const defaultRequestTimeout = 4 * time.Second

// Locker keeps locks in one container. It is a [driver.Locker] with the capabilities
// BatchInspector, Lister, Breaker and DataStore, and is safe for concurrent use.
type Locker struct {
	container *container.Client
	config    config
	closeIdle func()  // closes idle connections; nil if the client belongs to the program
	origin    *origin // nil if the client belongs to the program

	hadToken   atomic.Bool // the credential, if it is an identity, has given a token
	unreadable atomic.Bool // the credential may take leases, and was refused to read the record

	closing context.Context // ends with Close, which interrupts every call
	cancel  context.CancelFunc
	once    sync.Once
}

var _ driver.Locker = (*Locker)(nil)

type config struct {
	prefix         string // empty, or with a slash at its end
	requestTimeout time.Duration
	history        int
	logger         *slog.Logger
	pageSize       *int32          // of listings; nil means the service's default, 5000
	policies       []policy.Policy // observe each request of Open's client
}

// Option configures a Locker.
type Option func(*config)

// WithPrefix puts the locks' blobs into a folder of the container. A prefix consists of
// letters, digits and any of -_./ without empty, "." or ".." parts, and has at most 254 bytes.
// Lockers with different prefixes do not see each other's locks. The default is none.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithRequestTimeout limits each request to the service. With [Open], the login of an identity does not count: it has 30 s, and goes on
// for later calls if the context of a call ends. With [New] it counts, because the SDK asks the program's credential within a request. A
// request that failed or took longer is sent again, up to three times, while the operation's context lasts. The request that takes a lease
// is sent again only if the service was too busy for it. The default is 4 s, the minimum 10 ms. A whole operation has 15 s, so a longer
// limit has no effect. With data both have more time, by their size.
func WithRequestTimeout(d time.Duration) Option { return func(c *config) { c.requestTimeout = d } }

// WithHistory sets how many past holders are kept in the metadata of a lock's blob: 0 to
// [driver.MaxHistory], fewer if the metadata are longer than 8 KiB. Owners are cut to 64 bytes. The
// default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithLogger sets the logger for the kind of credential in use, at level debug. The default is
// [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

// WithPolicies adds policies through which every request of [Open]'s client passes, each
// attempt of it, for counters, traces or metrics. The requests of an identity's login do not. With [New] the program has set its own
// client's policies, and the option is a *[driver.InvalidError].
func WithPolicies(policies ...policy.Policy) Option {
	return func(c *config) { c.policies = append(c.policies, policies...) }
}

func newConfig(opts []Option) (config, error) {
	c := config{requestTimeout: defaultRequestTimeout, history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return c, err
	}
	switch {
	case c.requestTimeout < 10*time.Millisecond:
		return c, driver.Invalid("request timeout", c.requestTimeout.String(), "at least 10ms")
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	case slices.Contains(c.policies, nil):
		return c, driver.Invalid("policies", "with a nil", "of type policy.Policy")
	case !validPrefix(c.prefix):
		return c, driver.Invalid("prefix", fmt.Sprintf("%.40q", c.prefix), prefixRule)
	}
	if c.prefix != "" {
		c.prefix += "/"
	}
	return c, nil
}

// New returns a Locker on a container, through the program's own client with any credential.
// It sends nothing; the first acquire creates a missing container. The client's transport and
// policies apply, except its retry options. The client belongs to the program. The SDK's own transport follows redirects, to which it
// sends lease IDs and a SAS; one with a CheckRedirect that returns http.ErrUseLastResponse does not.
func New(client *container.Client, opts ...Option) (*Locker, error) {
	c, err := newConfig(opts)
	switch {
	case err != nil:
		return nil, connectError(err)
	case client == nil:
		return nil, connectError(driver.Invalid("container client", "nil", "a *container.Client"))
	case c.policies != nil:
		return nil, connectError(driver.Invalid("policies", "of requests", "an option of Open: the client given to New has its own"))
	}
	return newLocker(client, c), nil
}

func connectError(err error) error {
	return &driver.OpError{Op: "connect", Backend: backend, Err: err}
}

func newLocker(client *container.Client, c config) *Locker {
	l := &Locker{container: client, config: c}
	l.closing, l.cancel = context.WithCancel(context.Background())
	return l
}

// Info implements [driver.Locker]. The service fixes the length of a lease at the grant, and reports the end of no
// tenure but that of a free lock's last holder.
func (l *Locker) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: limits, Expiry: driver.ByServer, Failover: driver.GrantsSurvive,
		Free:    driver.FreeRecord{Token: true, Data: true, History: true},
		History: l.config.history, EndsUnknown: true, FixedTTL: true}
}

// Capabilities implements [driver.Locker]. Waker and Queue are missing because the
// service notifies nobody, BatchRenewer and BatchReleaser because a request is for one lease. BatchInspector
// uses listings.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{BatchInspector: l, Lister: l, Breaker: l, DataStore: l, Checker: l}
}

// Close implements [driver.Locker]. It interrupts running requests.
func (l *Locker) Close(ctx context.Context) error {
	l.once.Do(func() {
		l.cancel()
		if l.origin != nil && l.origin.tokens != nil {
			l.origin.tokens.close(ctx)
		}
		if l.closeIdle != nil {
			l.closeIdle()
		}
	})
	return nil
}
