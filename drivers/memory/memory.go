// Package memory keeps locks in the memory of one process. It is for tests, and
// for programs that run without a backend during development: nothing outlives
// the process and no other process sees it.
//
// Importing the package registers the URL scheme "mem": each "mem:" opens a
// store of its own. Tests in which several Lockers meet, as several processes
// meet on a server, make a [Store] and take the Lockers from it.
//
// Expiry is judged by the store's clock. The default, [time.Now], counts
// monotonic time, so that setting the wall clock changes nothing, and follows
// the fake clock of [testing/synctest]; [WithClock] sets another.
package memory

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

const backend = "memory"

var limits = driver.Limits{
	MinTTL:   time.Millisecond,
	MaxTTL:   10 * 365 * 24 * time.Hour,
	TTLStep:  time.Nanosecond,
	MaxName:  1024,
	MaxOwner: 1024,
	MaxData:  1 << 20,
	Poll:     100 * time.Millisecond,
}

func init() { driver.Register("mem", open) }

func open(_ context.Context, rawURL string) (driver.Locker, error) {
	const rule = "mem: and nothing after it; share a store with NewStore"
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, driver.Invalid("URL", "with scheme mem", rule)
	}
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return nil, driver.Invalid("URL", "with scheme mem", rule)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, driver.Invalid("URL", "with scheme mem", rule)
	}
	if err := driver.CheckParams(query); err != nil {
		return nil, err
	}
	return New(), nil
}

// Option sets up a [Store].
type Option func(*Store)

// WithClock sets the clock that judges expiry and, in milliseconds since 1970,
// is the lower bound of tokens. It may step in either direction. It is called
// with the store locked, so it must not use the store.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.now = now }
}

// Store holds the records that its Lockers share. It is safe for concurrent use.
type Store struct {
	now   func() time.Time
	epoch time.Time

	mu      sync.Mutex
	locks   map[string]*lockstate.Lock
	watches map[string]map[*watch]struct{}
	due     []*watch // to be woken when the store is unlocked
}

// NewStore makes an empty store.
func NewStore(opts ...Option) *Store {
	s := &Store{
		now:     time.Now,
		locks:   make(map[string]*lockstate.Lock),
		watches: make(map[string]map[*watch]struct{}),
	}
	for _, opt := range opts {
		opt(s)
	}
	s.epoch = s.now()
	return s
}

// Locker makes another Locker on the store. Closing it leaves the others alone,
// and the records.
func (s *Store) Locker() *Locker { return &Locker{store: s} }

// Remove deletes the record of a name, as an operator or a clean-up does on a
// server: the holder, if any, has lost it, and the token is forgotten.
func (s *Store) Remove(name string) {
	s.mu.Lock()
	defer s.unlock()
	delete(s.locks, name)
	s.wake(name)
}

// New makes a Locker on a store of its own.
func New(opts ...Option) *Locker { return NewStore(opts...).Locker() }

// Locker is one user of a [Store]: a [driver.Locker] with every capability.
type Locker struct {
	store  *Store
	closed atomic.Bool
}

var _ interface {
	driver.Locker
	driver.Watcher
	driver.HandOverer
	driver.BatchRenewer
	driver.BatchInspector
	driver.Lister
	driver.Breaker
	driver.DataStore
} = (*Locker)(nil)

// Limits allows TTLs from a millisecond to ten years.
func (l *Locker) Limits() driver.Limits { return limits }

// Capabilities are all there.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Watcher: l, HandOverer: l, BatchRenewer: l, BatchInspector: l, Lister: l, Breaker: l, DataStore: l}
}

// Close ends the Locker's watches.
func (l *Locker) Close(context.Context) error {
	if !l.closed.Swap(true) {
		l.store.stopWatches(l)
	}
	return nil
}

// do runs one operation on the locked store, after the checks that all share.
func (l *Locker) do(ctx context.Context, op, name string, invalid error, fn func(s *Store) error) error {
	err := l.ready(ctx, invalid)
	if err == nil {
		l.store.mu.Lock()
		defer l.store.unlock()
		err = fn(l.store)
	}
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: op, Backend: backend, Name: name, Err: err}
}

func (l *Locker) ready(ctx context.Context, invalid error) error {
	if l.closed.Load() {
		return driver.ErrClosed
	}
	if invalid != nil {
		return invalid
	}
	return ctx.Err()
}
