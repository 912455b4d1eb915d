package mongo

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Locker keeps locks in one collection. It is a [driver.Locker] with every capability and is
// safe for concurrent use.
type Locker struct {
	majority     *mongo.Collection // writes, and reads with read concern "majority"
	onPrimary    *mongo.Collection // writes that only the primary acknowledges
	local        *mongo.Collection // reads of the primary's latest data
	linearizable *mongo.Collection // linearizable reads, of one document each
	config       config
	standalone   bool         // the server is not a replica set
	forCheck     bool         // it is for examining the server ([driver.OpenForCheck])
	forReading   bool         // it only reads ([driver.OpenForReading])
	id           string       // in queues
	connections  *connections // of the client
	leave        func()       // ends the use of connections
	hints        *hints
	queue        *watcher                    // of the hints; nil if this Locker does not follow them
	hintless     atomic.Bool                 // it may not leave hints, and has logged that
	seen         placeProjection             // of fieldsWithoutData
	seenReaders  placeProjection             // of fieldsWithReaders
	disconnect   func(context.Context) error // nil if the client belongs to the program
	dial         *options.ClientOptions      // of the client; nil if it belongs to the program
	sockets      *sockets                    // of the client; nil if it does not log in, or belongs to the program
	loggedIn     bool                        // the server has answered, before any caller had the Locker

	closing            context.Context // ends with Close, which interrupts every command
	cancel             context.CancelFunc
	closeOnce          sync.Once
	closeDone          chan struct{} // closed when Close is done
	closeErr           error         // result of Close; valid once closeDone is closed
	clientDisconnected atomic.Bool   // the program disconnected its client
}

var _ driver.Locker = (*Locker)(nil)

// wakeRule is what the parameter wake, and WithWake, allow.
const wakeRule = "hints or poll"

// maxRetention is the greatest expireAfterSeconds of an index.
const maxRetention = math.MaxInt32 * time.Second

type config struct {
	timeout     time.Duration
	wake        Wake
	retention   time.Duration
	history     int
	updateIndex bool
	logger      *slog.Logger
	monitor     *event.CommandMonitor
	poolSize    int // how many connections the client has to each server; 0 if that is unknown
}

// Option configures a Locker.
type Option func(*config)

// WithCommandTimeout limits the duration of every command whose context has no earlier
// deadline; a frozen server would block it forever. The default is 10 s, the minimum 1 ms.
func WithCommandTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithRetention sets how long a document is kept after its expiry or release. Its last token
// and data are kept as long. The default is 24 h, the minimum 1 h.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithHistory sets how many past holders are kept in a lock's document: 0 to [driver.MaxHistory]. The
// default is [driver.DefaultHistory]. The last grant decides, so the processes of one collection should
// have the same number.
func WithHistory(n int) Option { return func(c *config) { c.history = n } }

// WithIndexUpdate changes the retention of an existing TTL index. Without it a difference is
// only logged, since another program may rely on the setting.
func WithIndexUpdate() Option { return func(c *config) { c.updateIndex = true } }

// Wake is the way in which waiters learn of a release.
type Wake string

// The ways to wake waiters.
const (
	// WakeHints orders the waiters of all processes in queues, and wakes the first by a small
	// document in a capped collection beside the locks. It is the default. A process that cannot
	// make or read that collection polls. Callers that watch a lock without a position in its queue,
	// as those for slots do, poll as well.
	WakeHints Wake = "hints"
	// WakePoll wakes nobody. Waiters poll.
	WakePoll Wake = "poll"
)

// WithWake sets how waiters learn of a release.
func WithWake(way Wake) Option { return func(c *config) { c.wake = way } }

// WithLogger sets the logger for warnings. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

// WithMonitor sets an observer of every command that [Open]'s client sends, for counters,
// traces or metrics. A monitor that prints whole commands prints lease IDs. With [New] the
// client and its monitor belong to the program, and the option is a *[driver.InvalidError].
func WithMonitor(m *event.CommandMonitor) Option { return func(c *config) { c.monitor = m } }

func newConfig(opts []Option) (config, error) {
	c := config{timeout: 10 * time.Second, wake: WakeHints, retention: 24 * time.Hour, history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return c, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return c, err
	}
	switch {
	case c.timeout < time.Millisecond:
		return c, driver.Invalid("command timeout", c.timeout.String(), "at least 1ms")
	case c.retention < time.Hour || c.retention > maxRetention || c.retention%time.Second != 0:
		return c, driver.Invalid("retention", driver.FormatDuration(c.retention), "whole seconds from 1h to "+driver.FormatDuration(maxRetention))
	case c.wake != WakeHints && c.wake != WakePoll:
		return c, driver.Invalid("wake", driver.Quote(string(c.wake)), wakeRule)
	case c.logger == nil:
		return c, driver.Invalid("logger", "nil", "a *slog.Logger")
	}
	return c, nil
}

// New returns a Locker on a collection of the program's own client, which must be of version 2 of the
// Go driver (go.mongodb.org/mongo-driver/v2). New checks the server, refuses one that cannot keep the
// promises, and creates the TTL index, all within ctx. The client must outlive the Locker; Close does
// not disconnect it.
//
// The locks depend on the client's pool of connections. Set its MaxConnIdleTime to about 30 s,
// which the Go driver does not do by itself: a firewall can forget idle connections, and a renewal that
// tries one dead connection after another comes too late. A pool that is busy with slow queries of the
// program delays renewals, too. A client for the locks alone avoids both; [Open] makes one.
func New(ctx context.Context, collection *mongo.Collection, opts ...Option) (*Locker, error) {
	config, err := newConfig(opts)
	switch {
	case err != nil:
		return nil, connectError(err)
	case collection == nil:
		return nil, connectError(driver.Invalid("collection", "nil", "a *mongo.Collection"))
	case config.monitor != nil:
		return nil, connectError(driver.Invalid("monitor", "of commands", "an option of Open: the client given to New has its own"))
	}
	if err := checkNames("database", "collection", collection.Database().Name(), collection.Name()); err != nil {
		return nil, connectError(err)
	}
	l := newLocker(collection, config)
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// newLocker returns a Locker that has sent nothing. begin makes it ready for use; without that it is
// for examining the server ([driver.OpenForCheck]).
func newLocker(collection *mongo.Collection, config config) *Locker {
	l := &Locker{majority: collection.Clone(majorityOptions()), config: config, id: newLockerID(), closeDone: make(chan struct{})}
	l.seen.fields, l.seenReaders.fields = fieldsWithoutData, fieldsWithReaders
	l.onPrimary = l.majority.Clone(acknowledgedByPrimary())
	l.local = l.majority.Clone(options.Collection().SetReadConcern(readconcern.Local()))
	l.linearizable = l.majority.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	l.closing, l.cancel = context.WithCancel(context.Background())
	l.connections, l.leave = connectionsOf(collection.Database().Client(), config.poolSize)
	l.hints = newHints(l.majority, l.id)
	return l
}

func (l *Locker) namespace() string { return namespaceOf(l.majority) }

// Database returns the database of the locks, for the program's own data beside them. It is
// usable until Close, if [Open] made the Locker. Its reads and writes have the settings of the
// connection, not those of the locks.
func (l *Locker) Database() *mongo.Database { return l.majority.Database() }

// Info implements [driver.Locker]. Grants survive a fail-over, except on a standalone server, which can forget
// them in a crash. A Locker for examining the server ([driver.OpenForCheck]) knows which it is after Check only.
func (l *Locker) Info() driver.Info {
	info := driver.Info{Backend: backend, Limits: limits, Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer,
		Failover: driver.GrantsSurvive,
		Free:     driver.FreeRecord{Token: true, Data: true, History: true, RemovedAfter: l.config.retention},
		History:  l.config.history, Turn: driver.TurnLength, WakesOnlyQueue: true}
	if l.standalone {
		info.Failover = driver.GrantsMayBeForgotten
	}
	return info
}

// Capabilities implements [driver.Locker]. The driver has every capability, except Queue and
// Waker as [WithWake] says. It wakes only waiters in a queue.
func (l *Locker) Capabilities() driver.Capabilities {
	a := driver.Capabilities{BatchRenewer: l, BatchReleaser: l, BatchInspector: l, Lister: l, Breaker: l, DataStore: l,
		Checker: l}
	if l.queue != nil {
		a.Waker, a.Queue = l, l
	}
	return a
}

// Close implements [driver.Locker]. It interrupts running commands, and disconnects the client
// if it was created from a URL, not if it was given to [New]. It ends the cursor and the
// sessions on the server if the server answers in time; otherwise they time out there.
func (l *Locker) Close(ctx context.Context) error {
	first := false
	l.closeOnce.Do(func() { first = true })
	if first {
		defer close(l.closeDone)
		l.closeErr = l.close(ctx)
		return l.closeErr
	}
	select {
	case <-l.closeDone:
		return l.closeErr
	case <-ctx.Done():
		return &driver.OpError{Op: "close", Backend: backend, Err: ctx.Err()}
	}
}

func (l *Locker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	l.cancel()
	defer l.leave()
	if l.queue != nil {
		l.queue.close(ctx)
	}
	if l.disconnect == nil {
		return nil
	}
	// The end of ctx interrupts commands that the server does not answer. The connections are
	// closed in any case.
	if err := l.disconnect(ctx); err != nil {
		return &driver.OpError{Op: "close", Backend: backend, Err: err}
	}
	return nil
}

func (l *Locker) warn(ctx context.Context, message string, args ...any) {
	l.config.logger.WarnContext(ctx, "holdfast: "+message, append([]any{"backend", backend, "collection", l.namespace()}, args...)...)
}
