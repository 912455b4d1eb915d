package azblob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

const backend = "azblob"

// limits: the service has leases of 15 to 60 whole seconds. A blob's name has
// at most 1024 characters, of which a byte of the lock's name takes up to three
// (see [escape]) and the prefix the rest. A blob's metadata, 8 KiB, must hold
// the owner, again up to three times as long.
var limits = driver.Limits{
	MinTTL:   15 * time.Second,
	MaxTTL:   60 * time.Second,
	TTLStep:  time.Second,
	TTLNote:  "what Azure has for blob leases; with MongoDB it is 100ms to 24h, with a folder 10ms to a year",
	MaxName:  256,
	MaxOwner: 1024,
	MaxData:  8 << 20,
	Poll:     5 * time.Second,
}

const (
	maxPrefix = 1024 - 3*256 - 1
	// opTimeout bounds a whole operation whose context has no earlier deadline.
	opTimeout = 15 * time.Second
	// dataRate, in bytes per second, is what a slow line is expected to carry:
	// time limits grow with the data accordingly.
	dataRate = 1 << 20
	retries  = 3
	// defaultTry is how long one request may take.
	defaultTry = 4 * time.Second
)

// Locker keeps locks in one container. It is a [driver.Locker] with the
// capabilities BatchInspector, Lister, Breaker and DataStore, and is safe for concurrent use.
type Locker struct {
	container *container.Client
	config    config
	idle      func() // closes idle connections; nil if the client is not ours

	closing context.Context // ends with Close, and with it every call
	stop    context.CancelFunc
	once    sync.Once
}

var _ interface {
	driver.Locker
	driver.BatchInspector
	driver.Lister
	driver.Breaker
	driver.DataStore
} = (*Locker)(nil)

type config struct {
	prefix     string // empty, or with a slash at its end
	tryTimeout time.Duration
	logger     *slog.Logger
	pageSize   *int32          // of listings; nil is the service's, 5000
	policies   []policy.Policy // that see each request of Open's client
}

// Option sets up a Locker.
type Option func(*config)

// WithPrefix has the locks' blobs in a folder of the container: letters, digits
// and any of -_./ but no empty, "." or ".." part; at most 254 bytes. Lockers
// with different prefixes do not see each other's locks. The default is none.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithRequestTimeout bounds each request to the service, with the time that an
// identity takes to get a token; one that failed or took longer is sent again,
// up to three times, while the operation's context lasts. The request that takes a
// lease is sent again only if the service was too busy for it. The default is 4 s, the
// least 10 ms. Requests that carry data have more, by their size.
func WithRequestTimeout(d time.Duration) Option { return func(c *config) { c.tryTimeout = d } }

// WithLogger sets where the driver tells, at level debug, which kind of
// credential it uses. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

// WithPolicies has every request that [Open]'s client sends, each try of it, pass
// through the policies: for a count, a trace or metrics. A program that gives [New] a
// client has set that client's policies itself: there the option is an
// *[driver.InvalidError].
func WithPolicies(policies ...policy.Policy) Option {
	return func(c *config) { c.policies = append(c.policies, policies...) }
}

func newConfig(opts []Option) (config, error) {
	c := config{tryTimeout: defaultTry, logger: slog.Default()}
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case c.tryTimeout < 10*time.Millisecond:
		return c, driver.Invalid("try timeout", c.tryTimeout.String(), "at least 10ms")
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	case slices.Contains(c.policies, nil):
		return c, driver.Invalid("policies", "with a nil", "of type policy.Policy")
	case !validPrefix(c.prefix):
		return c, driver.Invalid("prefix", fmt.Sprintf("%.40q", c.prefix), fmt.Sprintf(
			"at most %d letters, digits and any of -_./ without an empty, %q or %q part", maxPrefix-1, ".", ".."))
	}
	if c.prefix != "" {
		c.prefix += "/"
	}
	return c, nil
}

// New makes a Locker on a container, through the program's own client with any
// credential. It sends nothing: the container is made by the first acquire if it
// is not there. The client's transport and its policies are used, but for the
// one about retries. The client stays the program's.
func New(client *container.Client, opts ...Option) (*Locker, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, driver.Invalid("container client", "nil", "a *container.Client")
	}
	if c.policies != nil {
		return nil, driver.Invalid("policies", "of requests", "an option of Open only: the client given to New has its own")
	}
	return newLocker(client, c), nil
}

func newLocker(client *container.Client, c config) *Locker {
	l := &Locker{container: client, config: c}
	l.closing, l.stop = context.WithCancel(context.Background())
	return l
}

// Limits implements [driver.Locker].
func (l *Locker) Limits() driver.Limits { return limits }

// Capabilities implements [driver.Locker]. The service wakes nobody and renews one lease a
// request, so Watcher and BatchRenewer are absent. So is HandOverer: a lease can change its
// ID in one request, but the new token and owner go into the metadata with another. The
// service can be asked about many leases at once, by a listing.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{BatchInspector: l, Lister: l, Breaker: l, DataStore: l}
}

// Close implements [driver.Locker]. Requests under way are cut off.
func (l *Locker) Close(context.Context) error {
	l.once.Do(func() {
		l.stop()
		if l.idle != nil {
			l.idle()
		}
	})
	return nil
}

// op is what an error has to say about a call.
type op struct {
	verb, name string
	invalid    error // of the arguments
	size       int   // of the data that the call carries
}

// do runs one operation's requests within its time limit and the life of the
// Locker, and gives errors their form.
func (l *Locker) do(ctx context.Context, o op, requests func(context.Context) error) error {
	if err := l.run(ctx, o, requests); err != nil {
		return &driver.OpError{Op: o.verb, Backend: backend, Name: o.name, Err: err}
	}
	return nil
}

func (l *Locker) run(ctx context.Context, o op, requests func(context.Context) error) error {
	if l.closing.Err() != nil {
		return driver.ErrClosed
	}
	if o.invalid != nil {
		return o.invalid
	}
	limited, cancel := context.WithTimeout(ctx, opTimeout+transferTime(o.size))
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	err := limited.Err()
	if err == nil {
		err = clean(requests(limited))
	}
	switch cause := context.Cause(ctx); {
	case err == nil, outcomeKnown(err):
		return err
	case ctx.Err() != nil:
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if outcomeKnown(cause) {
			// It is the end of another hold or client, and no outcome of this call.
			err = fmt.Errorf("%w (%s)", err, cause.Error())
		} else if !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
	case l.closing.Err() != nil:
		err = fmt.Errorf("cut off by Close: %w", err)
	}
	return err
}

func outcomeKnown(err error) bool {
	return errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrLost) ||
		errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed)
}

// tries has the SDK send a request again if it fails. Whatever the client is set
// to, each try has a time limit, no try begins after the context's end, and
// when the service asks to wait longer than that (Retry-After), its refusal is
// returned at once.
func (l *Locker) tries(ctx context.Context, size int) context.Context {
	return policy.WithRetryOptions(ctx, l.retryOptions(ctx, retries, size))
}

// unlessRefused has a request sent again only if the service said that it did not
// take it on. Any other failure is for the caller to know: the request may still
// be on its way.
func (l *Locker) unlessRefused(ctx context.Context) context.Context {
	o := l.retryOptions(ctx, retries, 0)
	o.ShouldRetry = func(answer *http.Response, err error) bool {
		return err == nil && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable &&
			answer.Header.Get("x-ms-error-code") == string(bloberror.ServerBusy))
	}
	return policy.WithRetryOptions(ctx, o)
}

// onlyOnce has a request sent once.
func (l *Locker) onlyOnce(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, l.retryOptions(ctx, -1, 0))
}

func (l *Locker) retryOptions(ctx context.Context, retries int32, size int) policy.RetryOptions {
	deadline, _ := ctx.Deadline() // do has set one
	return policy.RetryOptions{
		MaxRetries:    retries,
		TryTimeout:    l.config.tryTimeout + transferTime(size),
		RetryDelay:    100 * time.Millisecond,
		MaxRetryDelay: max(time.Until(deadline), time.Millisecond),
	}
}

func transferTime(size int) time.Duration {
	return time.Duration(size) * time.Second / dataRate
}

// validPrefix asks for parts that no server or tool takes for anything else.
func validPrefix(prefix string) bool {
	if prefix == "" {
		return true
	}
	if len(prefix) >= maxPrefix {
		return false
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || strings.HasSuffix(part, ".") {
			return false
		}
		for _, c := range []byte(part) {
			if !plain(c) && c != '.' {
				return false
			}
		}
	}
	return true
}
