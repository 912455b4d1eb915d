package cas

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/sightings"
)

// Locker is a [driver.Locker] over a [Store]. It lists and breaks locks, stores data, and reads many records
// at a time. It wakes waiters if the store reports changes, and keeps an order of them if it has a clock, too.
type Locker struct {
	store     Store
	config    Config
	now       func() time.Time
	began     time.Time
	sightings sightings.Memory[mark]
	clock     storeClock
	unsafe    atomic.Pointer[verdict] // why the store must not be used
	young     bool                    // the store has passed few races, set by Open

	calls   *driverutil.Calls // Close interrupts them when it gives up waiting
	racing  context.Context   //nolint:containedctx // that of goOnRacing, which Close ends at once
	stop    context.CancelFunc
	mu      sync.Mutex
	waiting map[string]*waiting
	// renewals has the names of which a reader is renewed now, and the renewals of others that wait for that.
	renewals map[string][]*readerRenewal
}

var _ interface {
	driver.Locker
	driver.Waker
	driver.Queue
	driver.BatchInspector
	driver.Lister
	driver.Breaker
	driver.DataStore
	driver.Checker
} = (*Locker)(nil)

// Open makes a Locker. It races conditional writes on the store, at the key [ProbeKey], and refuses a store
// that lets two of them win or ignores their condition, because two clients could then hold one lock.
//
// A store that does so now and then can pass, since each round finds only what happens during it. So the value of the key counts the
// rounds of all programs. Until there are 200, Open makes more of them, and the Locker goes on racing every 2 s. A
// Locker that sees two writes win stores that as a verdict in the value. With a verdict Open fails, and Lockers that still race
// acquire and renew nothing more, until a person deletes the value. A holder that finds another one with its own token proves
// the same, if Info.Failover is [driver.GrantsSurvive].
func Open(ctx context.Context, store Store, config Config) (*Locker, error) {
	config, err := config.withDefaults()
	if err == nil && store == nil {
		err = driver.Invalid("Store", "nil", "a Store")
	}
	if err != nil {
		return nil, err
	}
	l := &Locker{store: store, config: config, now: time.Now, began: time.Now(), waiting: map[string]*waiting{}, calls: driverutil.NewCalls()}
	l.racing, l.stop = context.WithCancel(l.calls.Context())
	if config.ProbeRounds > 0 {
		if err := l.call(ctx, "probe", "", nil, l.probe); err != nil {
			l.calls.Interrupt()
			return nil, err
		}
	}
	if l.young {
		l.calls.Go(func() { l.goOnRacing(l.racing) })
	}
	return l, nil
}

// Info returns that of the Config, with the defaults.
func (l *Locker) Info() driver.Info { return l.config.Info }

// Capabilities has all but a [driver.BatchRenewer]: each lock has a value of its own, so a batch would save
// nothing. It has a [driver.Waker] if the store reports changes, and a [driver.Queue] if it has a clock, too.
func (l *Locker) Capabilities() driver.Capabilities {
	c := driver.Capabilities{BatchInspector: l, Lister: l, Breaker: l, DataStore: l, Checker: l}
	if l.config.Watch != nil {
		c.Waker = l
	}
	if l.ordered() {
		c.Queue = l
	}
	return c
}

// ordered reports whether waiters have an order. It needs a clock, and somebody who wakes them.
func (l *Locker) ordered() bool { return l.config.Info.Turn > 0 }

// elapsed reads the elapsed clock of this process. Where it stands still while the system sleeps, takeovers
// come later, never earlier.
func (l *Locker) elapsed() time.Duration { return l.now().Sub(l.began) }

// call checks what all methods check, runs work with a time limit, and wraps its error. invalid is the result
// of checking the arguments.
func (l *Locker) call(ctx context.Context, op, name string, invalid error, work func(context.Context) error) error {
	return driverutil.OpError(op, l.config.Info.Backend, name, l.calls.Run(ctx, 3*l.config.CallLimit, invalid, work))
}

// Close waits for the calls under way. Then it frees the store; see [Config.Close].
func (l *Locker) Close(ctx context.Context) error {
	idle, first := l.calls.Shut()
	if !first {
		return nil
	}
	l.stopWatches()
	l.stop()
	var err error
	select {
	case <-idle: // the calls have time limits
	case <-ctx.Done():
		err = errors.New("calls are still under way")
		l.calls.Interrupt()
		select { // those that only waited end at once
		case <-idle:
			err = nil
		case <-time.After(closeWait):
		}
	}
	l.calls.Interrupt()
	if l.config.Close != nil {
		err = errors.Join(err, plain(l.config.Close(ctx)))
	}
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: "close", Backend: l.config.Info.Backend, Err: err}
}

// closeWait is how long Close waits for calls that it has ended.
const closeWait = 50 * time.Millisecond

// get reads a key.
func (l *Locker) get(ctx context.Context, key string) (Value, error) {
	limited, cancel := context.WithTimeout(ctx, l.config.CallLimit)
	defer cancel()
	asked := l.elapsed()
	v, err := l.store.Get(limited, key)
	if err == nil {
		l.clock.note(asked, v.Now, false)
	}
	return v, fromStore(ctx, "reading the value", err)
}

// put writes a key.
func (l *Locker) put(ctx context.Context, key string, data []byte, version string) (Written, error) {
	limited, cancel := context.WithTimeout(ctx, l.config.CallLimit)
	defer cancel()
	asked := l.elapsed()
	done, err := l.store.Put(limited, key, data, version)
	if err == nil {
		l.clock.note(asked, done.Now, true)
	}
	return done, fromStore(ctx, "writing the value", err)
}

// fromStore is the error of a call of the store, as a method of the Locker may return it.
func fromStore(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil || errors.Is(err, ErrConflict) || errors.Is(err, ErrNotSafe):
		return err
	case driver.Lasting(err) && ctx.Err() == nil:
		return driver.Errorf("%s: %w", doing, err)
	case ended(ctx) && errors.Is(err, ctx.Err()) && !driver.OutcomeKnown(err): // it says so itself, and perhaps who is silent
		return driver.Errorf("%s: %w", doing, err)
	case ended(ctx):
		return fmt.Errorf("%s: %w (%s)", doing, ctx.Err(), driver.ErrorText(err))
	}
	return driver.Errorf("%s: %w", doing, plain(err))
}

// deadlineSlack is how much earlier than the context a client library may notice its deadline.
const deadlineSlack = 50 * time.Millisecond

// ended reports whether ctx has ended, or is about to: then it waits for that. Client libraries keep a context's deadline by
// clocks of their own, some of them on the server, and fail with errors of their own before the context ends.
func ended(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= deadlineSlack {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// plain is an error that has no meaning of those that are certain. A store may return the cause of a context's
// end, which can be the loss of another lock.
func plain(err error) error {
	if err == nil || !driver.OutcomeKnown(err) {
		return err
	}
	return errors.New(driver.ErrorText(err))
}
