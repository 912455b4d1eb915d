package cas

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const (
	longestRetry = 5 * time.Second
	// readPause is the time between two reads of a value that has changed.
	readPause = 10 * time.Millisecond
	// joinPause is how often a waiter without a position is woken to ask for one.
	joinPause = time.Second
)

// waiting is a name for which somebody waits. The Locker's mu guards what is not the follower's.
type waiting struct {
	follower *waitqueue.Follower // of the value; for it a waiter is what a name is for others
	waiters  map[driver.WaiterID]*waiter
	readers  []lockstate.Reader // that the record had when it was read last
}

// waiter is one that has called Wake; those without a position are one.
type waiter struct {
	watches int
	queued  bool          // whether it had a position when the record was read last
	sentAt  time.Duration // when it was woken to ask for a position
}

// Wake implements [driver.Waker].
func (l *Locker) Wake(name string, id driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	if l.config.Watch == nil {
		return func() {}
	}
	if !l.ordered() {
		id = ""
	}
	l.mu.Lock()
	w := l.waiting[name]
	if w == nil {
		w = &waiting{waiters: map[driver.WaiterID]*waiter{}}
		w.follower = waitqueue.NewFollower(l.calls.Context(), waitqueue.Source{
			Open: func(ctx context.Context) (waitqueue.Events, error) { return l.open(ctx, name, w) },
			Go: func(run func()) bool {
				return l.calls.Go(func() {
					run()
					l.mu.Lock()
					defer l.mu.Unlock()
					l.drop(name, w)
				})
			},
		}, waitqueue.Settings{LongestRetry: longestRetry, Linger: -1, LongestBlind: 1})
		l.waiting[name] = w
	}
	one := w.waiters[id]
	if one == nil {
		one = &waiter{sentAt: l.elapsed() - joinPause}
		w.waiters[id] = one
	}
	one.watches++
	l.mu.Unlock()
	stopWake := w.follower.Wake(string(id), "", wake)
	return sync.OnceFunc(func() {
		stopWake()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.watches--; one.watches > 0 {
			return
		}
		delete(w.waiters, id)
		l.drop(name, w)
	})
}

// drop ends the watch of a name for which nobody waits any more. One that has failed is kept until its backoff is over: the next
// waiter would otherwise try again at once. mu is held.
func (l *Locker) drop(name string, w *waiting) {
	if len(w.waiters) > 0 || l.waiting[name] != w || !w.follower.Usable() && w.follower.Running() {
		return
	}
	w.follower.Shut()
	delete(l.waiting, name)
}

// stopWatches ends all watches.
func (l *Locker) stopWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		w.follower.Shut()
	}
	clear(l.waiting)
}

// Leave implements [driver.Queue]. It changes several values at a time.
func (l *Locker) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	return l.call(ctx, "leave queues", "", driver.ValidateLeave(waiter, names, l.config.Info.Limits), func(ctx context.Context) error {
		names := slices.Compact(slices.Sorted(slices.Values(names)))
		errs := make([]error, len(names))
		parallel(len(names), func(i int) {
			errs[i] = l.change(ctx, names[i], nil, func(s *state) (bool, error) {
				s.mayBeForgotten = true // the position then ends by itself
				if s.Position(string(waiter)) == 0 {
					return false, nil
				}
				s.Leave(string(waiter))
				return true, nil
			})
		})
		return cmp.Or(errs...)
	})
}

// noteAnswer notes whether a waiter has a position.
func (l *Locker) noteAnswer(req driver.Request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[req.Name]
	if w == nil || req.Waiter == "" {
		return
	}
	if one := w.waiters[req.Waiter]; one != nil {
		var held *driver.HeldError
		one.queued = errors.As(err, &held) && held.Record.Position > 0
	}
}

// changes is the watch of a value. Of several changes it looks at the latest, so that the store's goroutine is not kept waiting.
type changes struct {
	l      *Locker
	name   string
	w      *waiting
	ctx    context.Context // ends with the watch
	cancel context.CancelFunc
	latest chan Value
	ended  chan error // closed after the result of the watch
}

// open watches the value of a name, and returns when that is in effect.
func (l *Locker) open(ctx context.Context, name string, w *waiting) (waitqueue.Events, error) {
	e := &changes{l: l, name: name, w: w, latest: make(chan Value, 1), ended: make(chan error, 1)}
	e.ctx, e.cancel = context.WithCancel(ctx)
	go func() {
		defer close(e.ended)
		defer e.cancel()
		e.ended <- cmp.Or(l.config.Watch(e.ctx, lockrecord.Key(name), e.set), errWatchEnded)
	}()
	select {
	case <-e.latest:
		return e, nil
	case err := <-e.ended:
		return nil, err
	}
}

var errWatchEnded = errors.New("the store has ended the watch")

// set puts a value in the place of an earlier one.
func (e *changes) set(v Value) {
	for {
		select {
		case e.latest <- v:
			return
		default:
		}
		select {
		case <-e.latest:
		default:
		}
	}
}

// Next implements [waitqueue.Events].
func (e *changes) Next(context.Context) error {
	select {
	case v := <-e.latest:
		e.l.changed(e.ctx, e.name, e.w, v)
		return nil
	case err := <-e.ended:
		return err
	}
}

// Close implements [waitqueue.Events].
func (e *changes) Close() {
	e.cancel()
	for range e.ended { // until the watch has returned
	}
}

// changed wakes the watches of a name whose value has changed: those that may be granted the lock now. If the
// value cannot be read, that is all of them.
func (l *Locker) changed(ctx context.Context, name string, w *waiting, v Value) {
	key := lockrecord.Key(name)
	var err error
	if v.Version == "" {
		v, err = l.get(ctx, key)
		defer func() {
			select {
			case <-time.After(readPause):
			case <-ctx.Done():
			}
		}()
	}
	var s *state
	if err == nil && v.Version != "" {
		s, err = l.stateOf(key, name, v)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil || v.Version == "" {
		w.follower.Gap()
		return
	}
	for id, after := range l.due(w, &s.record) {
		w.follower.Event(string(id), "", after)
	}
}

// due returns the waiters that a record wakes, each after a time. By the store's clock, it was written at rec.Used.
func (l *Locker) due(w *waiting, rec *record) map[driver.WaiterID]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var woken []lockstate.Waiter
	if rec.Holder == "" || len(rec.Readers) > 0 {
		woken = rec.Woken(lockstate.Moment{Elapsed: rec.Used})
	}
	// An expiry needs to wake nobody; readers whose leases have expired may still be there.
	free := !rec.Held(lockstate.Moment{Elapsed: rec.Used})
	// There are readers, and none of those before is left: others who have waited for a writer may join them.
	joins := len(rec.Readers) > 0 && !slices.ContainsFunc(w.readers, func(r lockstate.Reader) bool { return rec.Has(r.Holder) })
	w.readers = rec.Readers
	due, now := map[driver.WaiterID]time.Duration{}, l.elapsed()
	for id, one := range w.waiters {
		had := one.queued
		one.queued = id != "" && rec.Position(string(id)) > 0
		switch {
		case id == "" && (free || joins),
			slices.ContainsFunc(woken, func(w lockstate.Waiter) bool { return w.ID == string(id) }):
			due[id] = rec.turn(id)
		case id == "" || one.queued:
		case had:
			// It was passed over, and gets a new position: a later change may have hidden the one that was meant to wake it.
			due[id] = 0
		case len(rec.Queue) < driver.MaxWaiters && now-one.sentAt >= joinPause:
			// Many that begin to wait at the same time refuse each other's writes, and get no position.
			one.sentAt, due[id] = now, rand.N(joinPause)
		}
	}
	return due
}

// turn is how long a waiter that is woken waits for those before it. A shared lock that is held is free for it now.
func (r *record) turn(waiter driver.WaiterID) time.Duration {
	if r.Holder != "" {
		return 0
	}
	return r.Turn(string(waiter))
}
