package cas

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ErrConflict is what [Store.Put] returns if the key does not have the version that the write demands.
var ErrConflict = errors.New("cas: the value has another version")

// ErrNotSafe is what [Store.Put] returns, with the Written, if the write was done, but a fail-over may forget it, as when fewer replicas
// than wanted have confirmed it. The Locker undoes a grant that is not safe, and fails the request: no hold begins. Renewals, data and
// breaks are written again until that is safe, and fail if it takes too long; with [driver.GrantsMayBeForgotten], also after a write
// without an answer that was done. Releases and positions in the queue count as done: a release that is forgotten makes waiters wait
// for the end of the lease.
var ErrNotSafe = errors.New("cas: the write was done, but a fail-over may forget it")

// RefusedError is an [ErrConflict] with the value that the store had when it refused the write, for a store that returns it with
// the refusal. The Locker decides by it, and saves a Get.
type RefusedError struct{ Present Value }

// Error is that of ErrConflict.
func (*RefusedError) Error() string { return ErrConflict.Error() }

// Is makes it match [ErrConflict].
func (*RefusedError) Is(target error) bool { return target == ErrConflict }

// Store is what a driver implements. A Locker keeps one value for each lock, and never deletes one.
//
// All methods are safe for concurrent use, and return soon after their context ends. The Locker sets each call
// a time limit ([Config.CallLimit]) and repeats calls itself, so a Store makes each request once.
//
// Keys have at most 150 bytes, of a–z, 0–9 and -_.%~ only, and do not begin with a dot. A store whose keys
// have fewer characters, or that is shared with others, encodes them further and puts a prefix before them.
//
// An error that comes when the context has ended, or in the last 50 ms before its deadline, counts as the context's end,
// whatever its type is.
//
// An error says what failed, and shows no credential. It matches [driver.ErrDenied] (by [driver.Denied]) if the
// store refused the call, certainly changed nothing, and will refuse it until a person changes something.
// All other errors of Put but ErrConflict and ErrNotSafe mean that the outcome is unknown.
type Store interface {
	// Get returns the present value of a key. For a key without a value the Version is empty, and there is no
	// error. A Get that begins after a Put of any client has returned must return that write or a later one.
	Get(ctx context.Context, key string) (Value, error)
	// Put writes a value if the key still has the version, or, with the empty version, if it has no value. It
	// returns the new version, and the time if it knows that without a further call. The store compares and writes in
	// one step: of several writes with the same version one is done. Every write gets a version that the key never had before. A hash of the
	// value is one, since no two values that a Locker writes are equal. Where the store has no version of its own, prefer a hash to a
	// field beside the data: that stays when a person edits the data by hand, and a write that does not know of the edit replaces it.
	//
	// ErrConflict means that the value has another version, or none. The Locker reads it then, unless it comes with the
	// error ([RefusedError]), and detects its own write: a client library that repeats requests can report a conflict with that.
	Put(ctx context.Context, key string, data []byte, version string) (Written, error)
	// List returns a page of the keys that begin with prefix, in any order. page is empty for the first page, and
	// otherwise the next that came with the page before: what the store needs to go on. An empty next ends the
	// list. A page may be empty, and should have 1,000 keys at most, since its values are read within one time limit.
	// A key that had a value during the whole list is in it; one that is in it twice counts once. An Item may
	// have the value, if that costs no further call.
	List(ctx context.Context, prefix, page string) (items []Item, next string, err error)
}

// Value is what a store has under a key.
type Value struct {
	Data []byte
	// Version changes with every write. It is empty if there is no value.
	Version string
	// Now is the store's clock when it read the value, or a moment before. It is set for a key without a
	// value, too. A store without a clock leaves it zero; see [Config].Info.
	Now time.Time
	// Order is a number that each write of the store raises, whatever its key, or 0. It is for a store whose Now has steps. The
	// first token of a value without Data, or of a key without a value, is greater by it, and so greater than the tokens of a
	// value that was deleted before within the same step. It is [MaxOrder] at most, and tokens run ahead of the clock by that many
	// milliseconds. So a counter without gaps is best: one whose upper half counts the leaders leaps by 49 days.
	Order uint64
	// Unsure says that Now may be no measure of the present lease: the clocks of the store's servers seem to disagree. The lease
	// then counts as valid until [MaxDisagreement] after its end. A waiter takes it over before that if it has seen no renewal for a
	// whole TTL. Calls for a lock that has readers fail while its value is Unsure.
	Unsure bool
	// Other is set if the holder is a program that does not use this package, or if such a program has ended the last lease.
	// The Data may be older then, or missing.
	Other *Other
}

// Written is the answer to a write that was done.
type Written struct {
	// Version is the new one, that of this write. A store that does not return it may take a hash of the value for its
	// version. It must not be read after the write: then it may be another's.
	Version string
	// Now is the store's clock at a moment during the write. If it is zero, although there is a clock, each renewal
	// reads the value first, and one that did not is repeated. A store without a clock leaves it zero.
	Now time.Time
}

// Item is a key that [Store.List] has found. Without a Version the value is read when it is needed.
type Item struct {
	Key string
	Value
}

// MarginPart is the part of a TTL, 1/1000, for which a lease is observed beyond the TTL: the clocks of two
// machines may run at rates that differ by so much.
const MarginPart = 1000

// MaxOrder is the greatest [Value].Order. Tokens have 63 bits, and a value with the last one would block its lock forever.
const MaxOrder = 1 << 48

// MaxDisagreement is how far the clocks of a store's servers may differ while a [Value] is Unsure.
const MaxDisagreement = 10 * time.Minute

// Config describes a store.
type Config struct {
	// Info is what the Locker declares: Backend, Expiry and Failover at least. Turn is filled in, and what a free record
	// keeps. So are Limits that are zero: TTLs from 1 s to a year in steps of 1 ms, names and owners of 1024 bytes, 64 KiB of
	// data (each renewal writes them again), and 2 s for Poll.
	//
	// Info.Modes.Shared needs driver.ByServer. The value of a lock then has up to [driver.MaxHolders] holders, each of about 200
	// bytes, and every renewal of one of them writes it again.
	//
	// With driver.ByObservation a [MarginPart] of the TTL is added, and the time counts from the end of the read
	// that first showed a lease to the beginning of the last one. driver.ByServer is for a store whose [Store.Get]
	// returns the time. With a Watch, waiters then have an order.
	Info driver.Info
	// ClockStep is the step in which Value.Now advances, such as a second for the header Date of HTTP, or how far the clocks of servers
	// that have different keys may differ before renewals cost a read. Leases last for so much longer.
	ClockStep time.Duration
	// Watch, if not nil, reports changes of a key to changed until ctx ends or reporting fails: first when it has come into
	// effect, and then after each change. It returns within a second of the end of ctx.
	// The value is the new one; without a Version it is read.
	// A Get that begins after the report returns that value or a later one. changed returns at once. One call of
	// Watch runs for each name that somebody waits for. It is repeated after an error.
	Watch func(ctx context.Context, key string, changed func(Value)) error
	// Unordered says that waiters have no order, although there are a Watch and a clock: all are woken. It is for a store on which
	// a write by each waiter costs more than that, or whose clock has long steps.
	Unordered bool
	// Close, if not nil, frees what belongs to the store. It is called once, by Locker.Close.
	Close func(ctx context.Context) error
	// CallLimit is the time limit of one call of the store. The default is 5 s. A method of the Locker without a
	// limit of its own takes three times that at most.
	CallLimit time.Duration
	// ProbeRounds is how often Open races conditional writes. The default is 4, and a negative number means
	// never: for a Locker that only reads.
	ProbeRounds int
	// ProbeValue names the value at [ProbeKey] as people find it in the store, such as "the Lease x". The default names the key.
	ProbeValue string
}

const (
	defaultCallLimit = 5 * time.Second
	defaultRounds    = 4
)

// withDefaults fills in the defaults and checks the fields.
func (c Config) withDefaults() (Config, error) {
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&c.CallLimit, defaultCallLimit)
	limits := &c.Info.Limits
	fill(&limits.MinTTL, time.Second)
	fill(&limits.MaxTTL, 365*24*time.Hour)
	fill(&limits.TTLStep, time.Millisecond)
	fill(&limits.Poll, 2*time.Second)
	for value, size := range map[*int]int{&limits.MaxName: 1024, &limits.MaxOwner: 1024, &limits.MaxData: 64 << 10,
		&c.ProbeRounds: defaultRounds} {
		if *value == 0 {
			*value = size
		}
	}
	if c.ProbeValue == "" {
		c.ProbeValue = "the value of its key " + ProbeKey + " (with the prefix of the driver, if it has one)"
	}
	free := &c.Info.Free
	free.Token, free.Data, free.History = true, true, true
	c.Info.Turn = 0
	if c.Watch != nil && c.Info.Expiry == driver.ByServer && !c.Unordered {
		c.Info.Turn = driver.TurnLength
	}
	if err := c.Info.Validate(); err != nil {
		return c, err
	}
	switch {
	case c.Info.Modes.Shared && c.Info.Expiry != driver.ByServer:
		// Without a clock, the lease of one reader would seem to last as long as others renew theirs.
		return c, driver.Invalid("Info.Modes", c.Info.Modes.String(), driver.Modes{}.String()+" without a clock of the store")
	case c.ClockStep < 0 || c.ClockStep > time.Minute:
		return c, driver.Invalid("Config.ClockStep", driver.FormatDuration(c.ClockStep), "from 0s to 1m")
	case c.CallLimit < 0:
		return c, driver.Invalid("Config.CallLimit", driver.FormatDuration(c.CallLimit), "positive")
	}
	return c, nil
}
