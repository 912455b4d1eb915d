package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// asker takes one lock for one caller: it makes the attempts, remembers which of
// them ended in doubt, and decides when to ask again.
type asker struct {
	client   *Client
	settings settings
	emit     func(Event)
	req      Request
	over     func(h *Hold, released bool) // to be told when the hold is lost and when released, or nil

	doubt     doubt
	failures  int           // attempts in a row whose outcome is unknown
	last      error         // what kept the lock at the last attempt
	holder    Record        // as last seen
	told      Record        // the holder that observers were told of
	asked     bool          // who an unknown holder is
	unchanged time.Duration // since when holder.Revision was seen
	watching  bool          // a wake-up has come: releases will be told
}

// doubt says until when a request whose outcome is unknown could still keep the lock
// taken: one TTL after it was sent.
type doubt struct {
	any   bool
	until time.Duration
}

func (d *doubt) note(until time.Duration) {
	if !d.any || until > d.until {
		d.any, d.until = true, until
	}
}

func (c *Client) newAsker(name string, s settings, emit func(Event)) *asker {
	return &asker{client: c, settings: s, emit: emit,
		req: Request{Name: name, ID: newID(), Owner: s.owner, TTL: s.ttl, Data: s.data}}
}

// try makes one attempt. start is just before the request was sent: the lease's
// time counts from there, since the backend's own count began no earlier.
func (a *asker) try(ctx context.Context) (lease Lease, start time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, a.settings.tryTimeout)
	defer cancel()
	a.req.Replace = a.stuck()
	start = a.client.now()
	got, err := a.client.locker.TryAcquire(limited, a.req)
	// Only the token is news: what was asked for is what is kept.
	lease = a.lease()
	lease.Token = got.Token
	if err == nil && a.client.now() >= a.settings.lossAt(start) {
		// This process was held up for so long that the lease is as good as gone.
		err = fmt.Errorf("holdfast: acquire %q: %w: the reply came too late", a.req.Name, ErrLost)
	}
	a.learn(ctx, start, err)
	return lease, start, err
}

// learn takes in the outcome of an attempt.
func (a *asker) learn(ctx context.Context, start time.Duration, err error) {
	var held *HeldError
	a.last = err
	switch {
	case err == nil:
	case ctx.Err() != nil: // whatever the error looks like: it may be the caller's own cause
		a.failures++
		a.doubt.note(start + a.settings.ttl)
	case errors.As(err, &held):
		a.failures = 0
		a.see(held.Record)
	case errors.Is(err, ErrHeld): // of a driver that says no more
		a.failures = 0
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed):
	default:
		a.failures++
		a.doubt.note(start + a.settings.ttl)
		a.emit(Event{Type: EventError, Name: a.req.Name, Op: "acquire", Err: err, Time: time.Now()})
	}
}

// see compares the holder with the one seen before.
func (a *asker) see(now Record) {
	if now.Revision.IsZero() || now.Revision != a.holder.Revision {
		a.unchanged = a.client.now() // after the reply: the renewal was before this
	}
	// An owner that a backend cannot tell for a moment is not another holder.
	if anonymous := now.Owner == "" && now.Token == 0; !anonymous {
		a.tell(now)
	}
	a.holder = now
}

// tell tells of a holder, once.
func (a *asker) tell(holder Record) {
	if !a.asked || holder.Owner != a.told.Owner || holder.Token != a.told.Token {
		a.asked, a.told = true, holder
		a.emit(Event{Type: EventHolderSeen, Name: a.req.Name, Owner: holder.Owner, Token: holder.Token, Time: time.Now()})
	}
}

// identify asks, once for each wait, who a holder is that the backend's refusals do not
// name, for people who want to know what is waited for.
func (a *asker) identify(ctx context.Context) {
	if a.asked || !errors.Is(a.last, ErrHeld) {
		return
	}
	holder, err := a.client.Inspect(ctx, a.req.Name)
	if err != nil || holder.State != StateHeld {
		holder = Record{} // there is one, and that is all that is known
	}
	a.tell(holder)
}

// stuck returns the holder's revision if it has not been renewed for one whole TTL
// of our own elapsed time: it is over then, whatever a clock that stepped back
// makes of its expiry. The backend replaces exactly that revision, or refuses.
func (a *asker) stuck() Revision {
	if a.client.now() < a.stuckAt() {
		return Revision{}
	}
	return a.holder.Revision
}

// stuckAt is when the holder seen must have expired by our clock; 0.1 % is for drift.
func (a *asker) stuckAt() time.Duration {
	if a.holder.Revision.IsZero() || a.holder.TTL <= 0 {
		return longest + a.client.now()
	}
	ttl := min(a.holder.TTL, longest)
	return a.unchanged + ttl + ttl/driftPart
}

// pause is how long to wait before asking again unless woken.
func (a *asker) pause() time.Duration {
	if a.failures > 0 {
		return max(min(a.settings.retry(a.failures-1), jitter(a.settings.poll, 0.2)), time.Millisecond)
	}
	poll := a.settings.poll
	if a.watching {
		poll = a.settings.watchedPoll
	}
	pause := jitter(poll, 0.2)
	if a.holder.RemainingKnown {
		// Waiters of many processes wake for the same expiry: spread them a little.
		pause = min(pause, min(a.holder.Remaining, longest)+time.Millisecond+rand.N(10*time.Millisecond))
	}
	return max(min(pause, a.stuckAt()-a.client.now()), time.Millisecond)
}

// wait asks until the lock is granted, ctx ends, or the client shuts down. A value in
// nudge has it ask again.
func (a *asker) wait(ctx context.Context, nudge <-chan struct{}) (Lease, time.Duration, error) {
	var wake <-chan struct{}
	for watched := false; ; {
		lease, start, err := a.try(ctx)
		switch {
		case err == nil:
			return lease, start, nil
		case ctx.Err() != nil: // a caller that has gone away
			return Lease{}, 0, a.client.waitEnded(ctx, a.req.Name, cmp.Or(a.client.queues.reason(a.req.Name), err))
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed):
			return Lease{}, 0, err
		case errors.Is(err, ErrLost):
			// Granted, but too late to be of use: that ID is done with.
			a.abandon()
			a.req.ID, a.doubt = newID(), doubt{}
		}
		a.identify(ctx)
		a.client.queues.note(a.req.Name, err)
		if w := a.client.abilities.Watcher; !watched && w != nil {
			woken := make(chan struct{}, 1)
			defer w.Watch(a.req.Name, func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})()
			wake = woken
			watched = true
		}
		a.rest(ctx, wake, nudge)
		if ctx.Err() != nil {
			return Lease{}, 0, a.client.waitEnded(ctx, a.req.Name, a.last)
		}
	}
}

// rest waits until it is time to ask again.
func (a *asker) rest(ctx context.Context, wake, nudge <-chan struct{}) {
	if a.failures > 0 {
		wake, nudge = nil, nil // a backend that fails is left alone for the whole pause
	}
	timer := time.NewTimer(a.pause())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
		a.watching = true
	case <-nudge:
	case <-ctx.Done():
	}
}

// lease is what a request of this asker may have been granted unknown to it.
func (a *asker) lease() Lease {
	return Lease{Name: a.req.Name, ID: a.req.ID, Owner: a.req.Owner, TTL: a.req.TTL}
}

// abandon has the lock cleaned up if a request of this asker may hold it.
func (a *asker) abandon() {
	if a.doubt.any {
		a.client.cleanUp(a.lease(), a.doubt.until, a.settings.tryTimeout, a.emit)
	}
}

// waitEnded says both why waiting ended and what kept the lock.
func (c *Client) waitEnded(ctx context.Context, name string, kept error) error {
	why := context.Cause(ctx)
	switch {
	case c.closing.Err() != nil:
		return errShutdown
	case !errors.Is(why, ctx.Err()): // a cause of the caller's own
		why = fmt.Errorf("%w: %w", ctx.Err(), why)
	}
	if kept == nil {
		return fmt.Errorf("holdfast: lock %q: waiting ended: %w", name, why)
	}
	return fmt.Errorf("holdfast: lock %q: waiting ended: %w; %w", name, why, kept)
}
