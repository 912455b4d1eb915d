package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

const backend = "mongodb"

// limits: MongoDB would store names and data of nearly 16 MB. Names stay as
// short as an index entry had to be before MongoDB 4.2, and data small enough
// not to matter in the oplog and in an initial sync. $$NOW has milliseconds; a
// TTL under a tenth of a second would be spent on the majority's
// acknowledgement.
var limits = driver.Limits{
	MinTTL:   100 * time.Millisecond,
	MaxTTL:   24 * time.Hour,
	TTLStep:  time.Millisecond,
	MaxName:  1024,
	MaxOwner: 1024,
	MaxData:  1 << 20,
	Poll:     time.Second,
}

// Locker keeps locks in one collection. It is a [driver.Locker] with every
// capability and is safe for concurrent use.
type Locker struct {
	writes     *mongo.Collection // and reads of what a majority has
	latest     *mongo.Collection // reads of what the primary has
	exact      *mongo.Collection // reads of what is true now, one document each
	config     config
	standalone bool                        // the server is no replica set
	watcher    *watcher                    // nil where there are no change streams
	disconnect func(context.Context) error // nil if the client is not ours

	closing context.Context // ends with Close, and with it every command
	stop    context.CancelFunc
	once    sync.Once
	closed  chan struct{} // closed when Close is done
	err     error         // of Close; readable once closed is closed
	cutOff  atomic.Bool   // the program has disconnected its client
}

var _ interface {
	driver.Locker
	driver.HandOverer
	driver.BatchRenewer
	driver.BatchInspector
	driver.Lister
	driver.Breaker
	driver.DataStore
} = (*Locker)(nil)

type config struct {
	timeout     time.Duration
	retention   time.Duration
	updateIndex bool
	logger      *slog.Logger
	monitor     *event.CommandMonitor
}

// Option sets up a Locker.
type Option func(*config)

// WithCommandTimeout bounds every command that has no earlier deadline from its
// context; a frozen server answers nothing, forever. The default is 10 s, the
// least 1 ms.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithRetention sets how long after its expiry or release a document is kept,
// and with it the memory of its last token and data. The default is 24 h, the
// least 1 h.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithIndexUpdate has an existing TTL index changed to the retention. Without
// it a difference is only logged, since another program may want it so.
func WithIndexUpdate() Option { return func(c *config) { c.updateIndex = true } }

// WithLogger sets where warnings go. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

// WithMonitor has every command that [Open]'s client sends observed, for a count, a
// trace or metrics. Use no monitor that prints whole commands where logs must not
// show lease IDs. With [New] the client is the program's, and so is its monitor:
// there the option is an *[driver.InvalidError].
func WithMonitor(m *event.CommandMonitor) Option { return func(c *config) { c.monitor = m } }

func newConfig(opts []Option) (config, error) {
	c := config{timeout: 10 * time.Second, retention: 24 * time.Hour, logger: slog.Default()}
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case c.timeout < time.Millisecond:
		return c, driver.Invalid("command timeout", c.timeout.String(), "at least 1ms")
	case c.retention < time.Hour || c.retention > maxRetention || c.retention%time.Second != 0:
		return c, driver.Invalid("retention", text.Duration(c.retention), "whole seconds from 1h to "+text.Duration(maxRetention))
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	return c, nil
}

// New makes a Locker on a collection of the program's own client. It asks the
// server what it is, refuses one that cannot keep the promises, and creates the
// TTL index; ctx bounds that. The client stays the program's: it must outlive
// the Locker, and Close does not disconnect it.
func New(ctx context.Context, collection *mongo.Collection, opts ...Option) (*Locker, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if collection == nil {
		return nil, driver.Invalid("collection", "nil", "a *mongo.Collection")
	}
	if config.monitor != nil {
		return nil, driver.Invalid("monitor", "of commands", "an option of Open only: the client given to New has its own")
	}
	return newLocker(ctx, collection, config)
}

func newLocker(ctx context.Context, collection *mongo.Collection, config config) (*Locker, error) {
	// The user's registry, concerns and preferences have no say in the protocol.
	own := options.Collection().SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{}).
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
	l := &Locker{writes: collection.Clone(own), config: config, closed: make(chan struct{})}
	l.latest = l.writes.Clone(options.Collection().SetReadConcern(readconcern.Local()))
	l.exact = l.writes.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	l.closing, l.stop = context.WithCancel(context.Background())
	if err := l.prepare(ctx); err != nil {
		l.stop()
		return nil, err
	}
	if !l.standalone {
		l.watcher = newWatcher(l.writes, config.logger)
	}
	return l, nil
}

// prepare looks at the server and makes the index.
func (l *Locker) prepare(ctx context.Context) error {
	if err := l.do(ctx, op{verb: "connect"}, l.check); err != nil {
		return err
	}
	if l.standalone {
		// It has no majority to ask; what it knows is all there is.
		l.exact = l.writes
		l.warn(ctx, "this server is not a replica set: a crash may lose an acknowledged lock")
	}
	return l.do(ctx, op{verb: "create the TTL index"}, l.ensureIndex)
}

func (l *Locker) namespace() string { return l.writes.Database().Name() + "." + l.writes.Name() }

// Limits implements [driver.Locker].
func (l *Locker) Limits() driver.Limits { return limits }

// Capabilities implements [driver.Locker]: the driver has every capability, but no
// Watcher on a server that stands alone, which has no change streams.
func (l *Locker) Capabilities() driver.Capabilities {
	a := driver.Capabilities{HandOverer: l, BatchRenewer: l, BatchInspector: l, Lister: l, Breaker: l, DataStore: l}
	if l.watcher != nil {
		a.Watcher = l.watcher
	}
	return a
}

// Close implements [driver.Locker]. Commands that are under way are cut off.
// A client that was made from a URL is disconnected, one given to [New] is not. The
// server's cursor and sessions are ended as far as it answers in time; what it did not
// hear of times out there.
func (l *Locker) Close(ctx context.Context) error {
	first := false
	l.once.Do(func() { first = true })
	if first {
		defer close(l.closed)
		l.err = l.close(ctx)
		return l.err
	}
	select {
	case <-l.closed:
		return l.err
	case <-ctx.Done():
		return &driver.OpError{Op: "close", Backend: backend, Err: ctx.Err()}
	}
}

func (l *Locker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	l.stop()
	if l.watcher != nil {
		l.watcher.close(ctx)
	}
	if l.disconnect == nil {
		return nil
	}
	// The end of ctx cuts off what the server does not answer. The connections are closed
	// in any case.
	if err := l.disconnect(ctx); err != nil {
		return &driver.OpError{Op: "close", Backend: backend, Err: err}
	}
	return nil
}

// op is what an error has to say about a call.
type op struct {
	verb, name string
	ids        []string // of leases: never shown
	invalid    error    // of the arguments
}

// do runs one call's commands within the time limit and the life of the Locker,
// outside any session of the caller's, and gives errors their form.
func (l *Locker) do(ctx context.Context, o op, commands func(context.Context) error) error {
	if err := l.run(ctx, o, commands); err != nil {
		return &driver.OpError{Op: o.verb, Backend: backend, Name: o.name, Err: err}
	}
	return nil
}

func (l *Locker) run(ctx context.Context, o op, commands func(context.Context) error) error {
	if l.closing.Err() != nil {
		return driver.ErrClosed
	}
	if l.cutOff.Load() {
		return errDisconnected
	}
	if o.invalid != nil {
		return o.invalid
	}
	if mongo.SessionFromContext(ctx) != nil {
		// In a transaction a write would be invisible to others until its end,
		// and have that end's write concern.
		ctx = mongo.NewSessionContext(ctx, nil)
	}
	limited, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)() //nolint:contextcheck // the Locker's own life, besides the caller's context
	err := withoutDetails(commands(limited))
	if err == nil {
		return nil
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		// A command of this call may have been sent before. Of the next call none will be.
		l.cutOff.Store(true)
	}
	if mongo.IsTimeout(err) {
		if !errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // the server saw it first
		}
		if limit, _ := limited.Deadline(); !limit.Equal(deadline(ctx)) {
			err = fmt.Errorf("no answer within %v: %w", l.config.timeout, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = because(err, cause)
	} else if l.closing.Err() != nil {
		err = fmt.Errorf("cut off by Close: %w", err)
	}
	return explain(err, o.ids, l.namespace())
}

// errDisconnected is final: a client that was disconnected is not connected again.
var errDisconnected = fmt.Errorf("%w: the program has disconnected the MongoDB client", driver.ErrClosed)

// deadline is the context's, or no time at all.
func deadline(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}
