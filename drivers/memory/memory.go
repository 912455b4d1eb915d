// Package memory keeps locks in the memory of one process. It is for tests, and for
// programs that run without a backend during development. The locks end with the process,
// and no other process sees them.
//
// Importing the package registers the URL scheme "mem". Each "mem:" opens a store of its
// own. A test in which several Lockers compete for the same locks, as several processes do
// on a server, makes a [Store] and takes the Lockers from it.
//
// The store's clock judges expiry. The default is [time.Now]. It counts monotonic time, so
// setting the wall clock changes nothing, and it follows the fake clock of
// [testing/synctest]. [WithClock] sets another clock.
package memory

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
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

var params = []string{driver.ParamHistory}

func init() {
	driver.Register(driver.Description{
		Name:     "memory",
		Schemes:  []string{"mem"},
		Examples: []driver.Example{{URL: "mem:", Help: "the memory of this process, for tests"}},
		Reach:    driver.ReachProcess,
		Open:     open,
		Params:   params,
		TestURL:  "mem:",
	})
}

func open(_ context.Context, rawURL string) (driver.Locker, error) {
	const rule = "mem: and nothing after it but ?history=N; share a store with NewStore"
	u, query, err := driverutil.ParseURL(rawURL, rule, params...)
	if err != nil {
		return nil, err
	}
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.User != nil {
		return nil, driver.Invalid("URL", "with scheme mem", rule)
	}
	history, err := driver.HistoryParam(query)
	if err != nil {
		return nil, err
	}
	return New(WithHistory(history)), nil
}

// Option sets up a [Store]. A nil Option is an error of every method of the Lockers: [NewStore] returns none.
type Option func(*Store)

// WithClock sets the clock that judges expiry. In milliseconds since 1970 it is also the
// lower bound of tokens. It may step in either direction. now is called while the store is
// locked, so it must not use the store. A nil now is an error, as a nil Option is.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.now = now }
}

// WithHistory sets how many past holders are kept with each lock: 0 to [driver.MaxHistory]. A number
// outside of that becomes the nearest one. The default is [driver.DefaultHistory].
func WithHistory(n int) Option {
	return func(s *Store) { s.history = min(max(n, 0), driver.MaxHistory) }
}

// Store has the records that its Lockers share. It is safe for concurrent use.
type Store struct {
	now     func() time.Time
	epoch   time.Time
	history int   // how many past holders are kept
	invalid error // of the options

	mu      sync.Mutex
	locks   map[string]*lockstate.Lock
	removed uint64 // the greatest token of a removed record
	watches waitqueue.Watches[*watch]
	due     []call // woken when the store is unlocked
}

// NewStore makes an empty store.
func NewStore(opts ...Option) *Store {
	s := &Store{
		now:     time.Now,
		history: driver.DefaultHistory,
		locks:   make(map[string]*lockstate.Lock),
	}
	s.invalid = driverutil.ApplyOptions(s, opts)
	if s.now == nil {
		s.now, s.invalid = time.Now, driver.Invalid("Clock", "nil", "a function")
	}
	s.epoch = s.now()
	return s
}

// Locker makes another Locker on the store. Closing it affects neither the other Lockers
// nor the records.
func (s *Store) Locker() *Locker { return &Locker{store: s} }

// Remove deletes the record of a name, as an operator or a cleanup job does on a server.
// A holder loses the lock. The next token of the name is greater than that of the record.
func (s *Store) Remove(name string) {
	s.mu.Lock()
	defer s.unlock()
	s.remove(name)
	for key, w := range s.watches.All { // those in the queue too: it is gone
		if key.Name == name {
			s.due = append(s.due, call{w, driver.Wakeup{}})
		}
	}
}

// remove deletes a record. The store is locked.
func (s *Store) remove(name string) {
	if lock := s.locks[name]; lock != nil {
		s.removed = max(s.removed, lock.Token)
		delete(s.locks, name)
	}
}

// New makes a Locker on a store of its own.
func New(opts ...Option) *Locker { return NewStore(opts...).Locker() }

// Locker uses a [Store]. It is a [driver.Locker] with every capability.
type Locker struct {
	store  *Store
	closed atomic.Bool
}

var _ driver.Locker = (*Locker)(nil)

// Info implements [driver.Locker]. TTLs are from a millisecond to ten years. Grants survive, since all holders are
// processes, or parts of one, that end with the store.
func (l *Locker) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: limits, Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer,
		Failover: driver.GrantsSurvive, Free: driver.FreeRecord{Token: true, Data: true, History: true}, History: l.store.history,
		Turn: driver.TurnLength}
}

// Capabilities has every capability.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Waker: l, Queue: l, BatchRenewer: l, BatchReleaser: l, BatchInspector: l, Lister: l, Breaker: l,
		DataStore: l, Checker: l}
}

// Close ends the Locker's watches.
func (l *Locker) Close(context.Context) error {
	if !l.closed.Swap(true) {
		l.store.stopWatches(l)
	}
	return nil
}

// do checks what all operations check, runs one operation on the locked store, and wraps
// its error. invalid is the result of checking the arguments.
func (l *Locker) do(ctx context.Context, op, name string, invalid error, fn func(s *Store) error) error {
	err := driverutil.Unsent(l.checkCall(ctx, invalid))
	if err == nil {
		// Promise 1: one operation at a time reads and changes the records.
		l.store.mu.Lock()
		defer l.store.unlock()
		err = fn(l.store)
	}
	return driverutil.OpError(op, backend, name, err)
}

// checkCall returns the error of a call that must not reach the store.
func (l *Locker) checkCall(ctx context.Context, invalid error) error {
	if l.closed.Load() {
		return driver.ErrClosed
	}
	if err := cmp.Or(l.store.invalid, invalid); err != nil {
		return err
	}
	return ctx.Err()
}
