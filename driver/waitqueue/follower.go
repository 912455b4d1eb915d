package waitqueue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Source is what opens a stream. Its functions are called by one goroutine.
type Source struct {
	// Open opens the stream. It returns soon after ctx ends.
	Open func(ctx context.Context) (Events, error)
	// Opened is called with the result of each Open, for the log. It may be nil.
	Opened func(err error)
	// Backoff returns about how long to leave the stream alone at least after a failure, 0 for most. It may be nil.
	Backoff func(err error) time.Duration
	// Go runs a goroutine, for which Close waits. It returns false if there can be no more.
	Go func(run func()) bool
}

// Events is an open stream.
type Events interface {
	// Next waits for events, for a moment, and passes them to the Follower. Others may do so as well. An error, or
	// the end of ctx, ends the stream.
	Next(ctx context.Context) error
	// Close closes the stream, also after an error. It has a time limit of its own.
	Close()
}

// Follower drives a [Stream]: one goroutine opens the stream of a Locker, waits for its events and closes it, while there are
// waiters. Waiters poll as well, so it only makes them faster. NewFollower makes one.
type Follower struct {
	source Source
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	began  time.Time

	mu     sync.Mutex // never held across I/O, or a call of a waiter
	stream Stream[*watch]
	calls  Order[Call[*watch]]
}

// watch is one call of Wake.
type watch struct {
	wake    func(driver.Wakeup)
	stopped atomic.Bool
}

// NewFollower returns a Follower. The end of ctx shuts it, as Shut does.
func NewFollower(ctx context.Context, source Source, settings Settings) *Follower {
	f := &Follower{source: source, began: time.Now()}
	f.ctx, f.cancel = context.WithCancel(ctx)
	if settings.Random == nil {
		settings.Random = func(d time.Duration) time.Duration { return rand.N(d) }
	}
	f.stream.Init(settings)
	return f
}

// now is the time for the stream.
func (f *Follower) now() time.Duration { return time.Since(f.began) }

// Wake implements [driver.Waker].
func (f *Follower) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	key, one := Key{Name: name, Waiter: waiter}, &watch{wake: wake}
	f.note(func(now time.Duration) []Call[*watch] {
		if f.ctx.Err() != nil {
			return nil
		}
		calls, begin := f.stream.Add(now, key, one)
		if begin && !f.source.Go(f.run) {
			f.stream.Shut()
		}
		return calls
	})
	return func() {
		one.stopped.Store(true)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stream.Remove(f.now(), key, one)
	}
}

// note notes an event of the stream, and makes the calls that are due.
func (f *Follower) note(event func(now time.Duration) []Call[*watch]) {
	f.mu.Lock()
	f.calls.Add(event(f.now())...)
	f.mu.Unlock()
	f.calls.Make(func(c Call[*watch]) {
		if !c.Watch.stopped.Load() {
			c.Watch.wake(c.Up)
		}
	})
}

// Event notes that the lock of a name may be free. It wakes those that every release wakes, or one waiter of the
// lock's queue, after a time.
func (f *Follower) Event(name string, waiter driver.WaiterID, after time.Duration) {
	f.note(func(now time.Duration) []Call[*watch] {
		return f.stream.Event(now, Key{Name: name, Waiter: waiter}, after)
	})
}

// Gap notes that events may have been missed, but none from now on.
func (f *Follower) Gap() { f.note(f.stream.Gap) }

// Watched reports whether somebody wants to be woken by each release of a name.
func (f *Follower) Watched(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stream.Watched(Key{Name: name})
}

// Usable reports whether the stream is open, or has not failed to be opened.
func (f *Follower) Usable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stream.Usable()
}

// OpenSince returns since when no event was missed, or the zero time if the stream is not open.
func (f *Follower) OpenSince() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since, isOpen := f.stream.Since(); isOpen {
		return f.began.Add(since)
	}
	return time.Time{}
}

// Running reports whether the goroutine exists.
func (f *Follower) Running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stream.Driven()
}

// Shut ends all watches. The goroutine ends soon; who runs it waits for it.
func (f *Follower) Shut() {
	f.mu.Lock()
	for _, w := range f.stream.Watches() {
		w.stopped.Store(true)
	}
	f.stream.Shut()
	f.mu.Unlock()
	f.cancel()
}

func (f *Follower) next() (Step, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if f.ctx.Err() != nil {
		f.stream.Shut()
	}
	do, until := f.stream.Next(now)
	return do, until - now
}

// run does what the stream needs next, until it needs nothing.
func (f *Follower) run() {
	var events Events
	for {
		do, wait := f.next()
		switch do {
		case Open:
			var err error
			events, err = f.source.Open(f.ctx)
			if f.source.Opened != nil && f.ctx.Err() == nil {
				f.source.Opened(err)
			}
			if err != nil {
				f.failed(err)
			} else {
				f.note(f.stream.Opened)
			}
		case Read:
			if err := events.Next(f.ctx); err != nil {
				events.Close()
				f.failed(err)
			}
		case Close:
			events.Close()
			f.note(func(time.Duration) []Call[*watch] {
				f.stream.Closed()
				return nil
			})
		case Rest:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-f.ctx.Done():
			}
			timer.Stop()
		case Done:
			return
		}
	}
}

func (f *Follower) failed(err error) {
	var least time.Duration
	if f.source.Backoff != nil {
		least = f.source.Backoff(err)
	}
	f.note(func(now time.Duration) []Call[*watch] { return f.stream.Failed(now, least) })
}
