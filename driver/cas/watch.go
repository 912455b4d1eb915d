package cas

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/retry"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
	// readPause is the time between two reads of a value that has changed.
	readPause = 10 * time.Millisecond
	// joinPause is how often a waiter without a position is woken to ask for one.
	joinPause = time.Second
)

// waiting is a name for which somebody waits. The Locker's mu guards it.
type waiting struct {
	watches  map[*watch]struct{}
	inEffect bool               // whether the store reports changes
	readers  []lockstate.Reader // that the record had when it was read last
	stop     context.CancelFunc
}

// watch is one call of Wake.
type watch struct {
	waiter  driver.WaiterID // empty without a position
	wake    func(driver.Wakeup)
	queued  bool          // whether the waiter had a position when the record was read last; Locker.mu guards it
	sentAt  time.Duration // when it was woken to ask for a position; Locker.mu guards it
	stopped atomic.Bool
	reports waitqueue.Order[driver.Wakeup]
}

// Wake implements [driver.Waker].
func (l *Locker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	one := &watch{waiter: waiter, wake: wake, sentAt: l.elapsed() - joinPause}
	if l.config.Watch == nil {
		return func() {}
	}
	if !l.ordered() {
		one.waiter = ""
	}
	l.mu.Lock()
	w := l.waiting[name]
	if w == nil {
		w = &waiting{watches: map[*watch]struct{}{}}
		var ctx context.Context
		ctx, w.stop = context.WithCancel(l.calls.Context())
		if !l.calls.Go(func() { l.follow(ctx, name, w) }) {
			l.mu.Unlock()
			w.stop()
			return func() {}
		}
		l.waiting[name] = w
	}
	w.watches[one] = struct{}{}
	if w.inEffect {
		one.reports.Add(driver.Wakeup{Kind: driver.WakingBegan})
	}
	l.mu.Unlock()
	one.report()
	return func() { l.removeWatch(name, w, one) }
}

func (l *Locker) removeWatch(name string, w *waiting, one *watch) {
	one.stopped.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := w.watches[one]; !there {
		return
	}
	if delete(w.watches, one); len(w.watches) == 0 {
		w.stop()
		delete(l.waiting, name)
	}
}

// stopWatches ends all watches.
func (l *Locker) stopWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		for one := range w.watches {
			one.stopped.Store(true)
		}
		clear(w.watches)
		w.stop()
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
				if s.Position(string(waiter)) == 0 {
					return false, nil
				}
				s.Leave(string(waiter))
				s.mayBeForgotten = true // the position then ends by itself
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
	var held *driver.HeldError
	queued := errors.As(err, &held) && held.Record.Position > 0
	for one := range w.watches {
		if one.waiter == req.Waiter {
			one.queued = queued
		}
	}
}

// notePositions notes which watches' waiters have a position, and returns those that had one before and have none, and others without
// one that are due to ask for it: many that begin to wait at the same time refuse each other's writes, and get none. joins says that
// there are readers, and that none of those before is left: others who have waited for a writer may join them.
func (l *Locker) notePositions(w *waiting, rec *record) (lost, outside map[*watch]bool, joins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	joins = len(rec.Readers) > 0 && !slices.ContainsFunc(w.readers, func(r lockstate.Reader) bool { return rec.Has(r.Holder) })
	w.readers = rec.Readers
	lost, outside = map[*watch]bool{}, map[*watch]bool{}
	now := l.elapsed()
	for one := range w.watches {
		has := one.waiter != "" && rec.Position(string(one.waiter)) > 0
		lost[one] = one.queued && !has
		if !has && !one.queued && one.waiter != "" && len(rec.Queue) < driver.MaxWaiters && now-one.sentAt >= joinPause {
			one.sentAt, outside[one] = now, true
		}
		one.queued = has
	}
	return lost, outside, joins
}

// wakeAll wakes the watches of a name. wake functions are called without mu, since they may stop their watch.
func (l *Locker) wakeAll(w *waiting, kind driver.WakeupKind) {
	for _, one := range l.watchesOf(w) {
		one.report(driver.Wakeup{Kind: kind})
	}
}

func (l *Locker) watchesOf(w *waiting) []*watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(w.watches))
}

// report reports what is due, and then ups.
func (one *watch) report(ups ...driver.Wakeup) {
	one.reports.Add(ups...)
	one.reports.Make(func(up driver.Wakeup) {
		if !one.stopped.Load() {
			one.wake(up)
		}
	})
}

// setInEffect notes whether the store reports changes, and returns whether it did so before.
func (l *Locker) setInEffect(w *waiting, inEffect bool) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, w.inEffect = w.inEffect, inEffect
	return before
}

// follow watches a name until nobody waits for it. After a failure it waits for the backoff.
func (l *Locker) follow(ctx context.Context, name string, w *waiting) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := l.elapsed()
		l.followOnce(ctx, name, w)
		if ctx.Err() != nil {
			return
		}
		if l.setInEffect(w, false) {
			l.wakeAll(w, driver.WakingEnded)
		}
		if l.elapsed()-began > 2*longestRetry {
			failures = 0
		}
		// At random: when the store is back, not all clients come at once.
		longest := retry.Delay(failures, firstRetry, longestRetry)
		retry.Wait(ctx, longest/2+rand.N(longest))
	}
}

// followOnce watches a name until that fails. The values are looked at by a goroutine of their own, so that
// the store's is not kept waiting. Of several changes it looks at the latest.
func (l *Locker) followOnce(ctx context.Context, name string, w *waiting) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, done := make(chan Value, 1), make(chan struct{})
	go func() {
		defer close(done)
		for first := true; ; first = false {
			select {
			case v := <-changes:
				if first {
					l.setInEffect(w, true)
					l.wakeAll(w, driver.WakingBegan)
				} else {
					l.changed(ctx, name, w, v)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	_ = l.config.Watch(ctx, lockrecord.Key(name), func(v Value) {
		for {
			select {
			case changes <- v:
				return
			default:
			}
			select {
			case <-changes: // a later one replaces it
			default:
			}
		}
	})
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
		l.wakeAll(w, driver.WakingBegan)
		return
	}
	// By the store's clock, the record was written at rec.Used.
	rec := &s.record
	var woken []lockstate.Waiter
	if rec.Holder == "" || len(rec.Readers) > 0 {
		woken = rec.Woken(lockstate.Moment{Elapsed: rec.Used})
	}
	lost, outside, joins := l.notePositions(w, rec)
	free := !rec.Held(lockstate.Moment{Elapsed: rec.Used}) // readers whose leases have expired may still be there
	for _, one := range l.watchesOf(w) {
		// A waiter that was passed over is woken, so that it gets a new position: a later change may have hidden the
		// one that was meant to wake it.
		if lost[one] {
			one.report(driver.Wakeup{Kind: driver.WakingBegan})
		}
		if outside[one] {
			one.report(driver.Wakeup{After: rand.N(joinPause)})
		}
		isWoken := one.waiter == "" && (free || joins) ||
			slices.ContainsFunc(woken, func(w lockstate.Waiter) bool { return w.ID == string(one.waiter) })
		if isWoken { // an expiry needs to wake nobody
			one.report(driver.Wakeup{After: rec.turn(one.waiter)})
		}
	}
}

// turn is how long a waiter that is woken waits for those before it. A shared lock that is held is free for it now.
func (r *record) turn(waiter driver.WaiterID) time.Duration {
	if r.Holder != "" {
		return 0
	}
	return r.Turn(string(waiter))
}
