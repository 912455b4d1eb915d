package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Acquisition takes one lock for one caller, or any one of its slots. It sends the requests,
// notes which of them ended in doubt, and decides when to send the next.
//
// Its caller uses it from one goroutine at a time.
type Acquisition struct {
	client   *Client
	name     string
	settings settings.Settings
	policy   *Policy // of the hold that it leads to
	last     error   // the outcome of the latest request
	queued   bool    // it waits in the backend's queue
	waited   bool    // and has had itself woken by it

	Emit     func(event.Event)
	Attempts []*Attempt // one for each slot
	Failures int        // requests in a row whose outcome is unknown
}

// Grant is a lease that an acquisition was granted.
type Grant struct {
	lease        driver.Lease
	attempt      *Attempt
	start        time.Duration // just before the request was sent; the lease's time counts from here
	handoffUntil time.Duration // see Hold.handoffUntil
}

// NewAcquisition returns an acquisition whose hold has a policy of its own.
func (c *Client) NewAcquisition(name string, s settings.Settings, emit func(event.Event)) *Acquisition {
	return c.NewSharedAcquisition(&Policy{Policy: renewal.Policy{Timing: s.Timing, Emit: emit, Overrun: s.Overrun, Role: s.Role}}, name, s)
}

// NewSharedAcquisition returns an acquisition whose hold shares its policy with others.
func (c *Client) NewSharedAcquisition(p *Policy, name string, s settings.Settings) *Acquisition {
	a := &Acquisition{client: c, name: name, settings: s, Emit: p.Emit, policy: p, Attempts: make([]*Attempt, s.Slots)}
	for slot := range a.Attempts {
		a.Attempts[slot] = &Attempt{acquisition: a, slot: slot,
			req: driver.Request{Name: slotName(name, slot), ID: newLeaseID(), Owner: s.Owner, TTL: s.TTL, Data: s.Data}}
	}
	return a
}

// candidates lists the attempts for the slots that this process does not hold, or for all
// slots if it holds them all. The list begins at a random slot, so that processes do not
// compete for the first. Attempts that failed come last, so that one damaged record does not
// keep callers from the other slots.
func (a *Acquisition) candidates() []*Attempt {
	if len(a.Attempts) == 1 {
		return a.Attempts
	}
	first := timing.RandomInt(len(a.Attempts))
	all := slices.Concat(a.Attempts[first:], a.Attempts[:first])
	own := a.client.queues.heldSlots(a.name)
	list := filter(all, func(t *Attempt) bool { return !slices.Contains(own, t.slot) })
	if len(list) == 0 {
		list = all
	}
	return append(filter(list, func(t *Attempt) bool { return !t.failed }), filter(list, func(t *Attempt) bool { return t.failed })...)
}

// Try sends one request for each of the attempts in turn, until one is granted. Any outcome
// but a refusal ends it, so that a failing backend is not called once for each slot. After the
// first refusal, one read drops the slots that are held, where the backend reads in batches.
func (a *Acquisition) Try(ctx context.Context, attempts []*Attempt) (Grant, error) {
	for first := true; len(attempts) > 0; first = false {
		if !first && len(attempts) > 1 {
			if attempts = a.dropHeld(ctx, attempts); len(attempts) == 0 {
				break
			}
		}
		g, err := a.send(ctx, attempts[0], a.settings.RequestTimeout, a.client.locker.TryAcquire)
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
		attempts = attempts[1:]
	}
	a.Failures = 0
	return Grant{}, a.last
}

// dropHeld returns the attempts whose slots are not held by others, as one batch read shows it.
func (a *Acquisition) dropHeld(ctx context.Context, attempts []*Attempt) []*Attempt {
	inspector := a.client.capabilities.BatchInspector
	if inspector == nil {
		return attempts
	}
	names := make([]string, len(attempts))
	for i, t := range attempts {
		names[i] = t.req.Name
	}
	ctx, cancel := context.WithTimeout(ctx, a.settings.RequestTimeout)
	defer cancel()
	records, errs := batchread.Inspect(ctx, inspector, names)
	var free []*Attempt
	for i, t := range attempts {
		if t.SawRecord(records[i], errs[i]) {
			free = append(free, t)
		}
	}
	return free
}

// send sends the request of one attempt with a time limit, and notes its outcome.
func (a *Acquisition) send(ctx context.Context, t *Attempt, limit time.Duration, send func(context.Context, driver.Request) (driver.Lease, error)) (Grant, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Promise 10: the backend replaces a holder that has not renewed for one whole TTL of this
	// Client's elapsed time, whatever its expiry says, and only that very revision.
	t.req.Replace = t.stuckRevision()
	// Promise 2: the lease's time counts from before the request. The backend's own count begins
	// no earlier.
	start := a.client.now()
	t.askedAt = start
	if a.queued {
		t.req.QueueFor = a.queueFor()
	}
	got, err := send(limited, t.req)
	lease := t.lease()
	// Promise 3: the backend alone makes tokens. The rest of the lease is what was requested.
	lease.Token, lease.Contended = got.Token, got.Contended || t.refused
	if err == nil && a.client.now() >= a.settings.LossAt(start) {
		// Promise 1: a grant that arrives after its own loss time never becomes a hold. The
		// lease may be another's by now.
		err = driver.Errorf("holdfast: acquire %q: %w: the reply came too late", t.req.Name, driver.ErrLost)
	}
	a.noteOutcome(ctx, t, start, err)
	return Grant{lease, t, start, handoffDeadline(start)}, err
}

// noteOutcome notes the outcome of a request that was sent at start.
func (a *Acquisition) noteOutcome(ctx context.Context, t *Attempt, start time.Duration, err error) {
	a.last = err
	t.failed = err != nil && !errors.Is(err, driver.ErrHeld)
	switch {
	case err == nil:
	case ctx.Err() != nil: // whatever the error looks like: it may be the cause of the caller's own context
		a.noteInDoubt(t, start)
	case errors.Is(err, driver.ErrHeld):
		a.last = allHeld(a.name, len(a.Attempts), err)
		t.noteRefusal(err)
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
	default:
		a.noteInDoubt(t, start)
		a.Emit(event.Event{Type: event.Error, Name: t.req.Name, Op: "acquire", Err: err, Time: time.Now()})
		if errors.Is(err, driver.ErrLost) { // granted, but too late: the next request needs another ID
			t.abandon()
		}
	}
}

// noteInDoubt notes a request whose outcome is unknown.
func (a *Acquisition) noteInDoubt(t *Attempt, start time.Duration) {
	a.Failures++
	// Promise 5: a request may be applied although its reply was lost, and may still keep the
	// lock taken one TTL after it was sent.
	t.inDoubt.Note(start + a.settings.TTL)
}

// Identify reads the record of a holder that the backend's refusals do not name, once, so that
// observers are notified of it.
func (a *Acquisition) Identify(ctx context.Context) {
	if slices.ContainsFunc(a.Attempts, func(t *Attempt) bool { return t.identified }) || !errors.Is(a.last, driver.ErrHeld) {
		return
	}
	i := slices.IndexFunc(a.Attempts, func(t *Attempt) bool { return t.refused && !t.reserved })
	if i < 0 {
		return
	}
	holder, err := a.client.Inspect(ctx, a.Attempts[i].req.Name)
	if err != nil || holder.State != driver.StateHeld {
		holder = driver.Record{} // there is a holder, and nothing more is known of it
	}
	a.Attempts[i].report(holder)
}

// waitUntilGranted sends requests until the lock is granted, ctx ends, or the client shuts
// down. w is the caller's place in the queue.
func (a *Acquisition) waitUntilGranted(ctx context.Context, w *waiter) (Grant, error) {
	wake := make(chan struct{}, 1)
	g, err := a.sendFirst(ctx, w)
	for watched := false; ; {
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil: // the caller has gone
			return Grant{}, a.client.WaitEnded(ctx, a.name, cmp.Or(a.client.queues.reason(w), err))
		case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
			return Grant{}, err
		}
		a.Identify(ctx)
		a.client.queues.note(a.name, err)
		if !watched {
			defer a.watch(wake)()
			watched = true
		}
		due := a.waitForNext(ctx, wake, w)
		if ctx.Err() != nil {
			return Grant{}, a.client.WaitEnded(ctx, a.name, a.last)
		}
		g, err = a.Try(ctx, due)
	}
}

// sendFirst sends the first request of a waiter whose turn it is: the request that completes a
// handoff, or an ordinary one, after other processes had time to send theirs.
func (a *Acquisition) sendFirst(ctx context.Context, w *waiter) (Grant, error) {
	if w.offer != nil {
		return a.accept(ctx, w)
	}
	if yield := a.client.queues.yieldUntil(w) - a.client.now(); yield > 0 && !a.queued {
		select {
		case <-time.After(yield):
		case <-ctx.Done():
			return Grant{}, ctx.Err()
		}
	}
	return a.Try(ctx, a.candidates())
}

// JoinQueue has the acquisition wait in the backend's queue, if there is one, until LeaveQueue.
// An acquisition of one of several slots does not: a waiter that was granted one slot would still
// have its positions in the queues of the others.
func (a *Acquisition) JoinQueue() {
	if a.client.capabilities.Queue != nil && len(a.Attempts) == 1 && !a.queued {
		a.queued = true
		a.client.queuedNames.Add(1)
	}
}

// LeaveQueue ends JoinQueue.
func (a *Acquisition) LeaveQueue() {
	if a.queued {
		a.queued = false
		a.client.queuedNames.Add(-1)
	}
}

// giveUpPosition gives up a position that the first request may have entered although no wait
// followed: its answer was lost, or the caller's time was over. The end of a wait does the same.
func (a *Acquisition) giveUpPosition() {
	if a.queued && !a.waited {
		a.client.capabilities.Queue.Wait(a.Attempts[0].req.Name, func(time.Duration) {})()
	}
}

// A position in the backend's queue is refreshed by a request, which is a write. A process that
// waits for few names sends one at the poll interval. One that waits for many names refreshes
// its positions less often, and reads the records at the poll interval.
const (
	refreshedPerRound  = 32 // names at most
	maxRefreshInterval = 10 * time.Minute
	minQueueFor        = time.Minute
)

// refreshRounds is in how many rounds, one at each poll interval, this process refreshes its
// positions.
func (c *Client) refreshRounds() int64 {
	return 1 + max(c.queuedNames.Load()-1, 0)/refreshedPerRound
}

// refreshInterval is how long after a request the next one is due to refresh the position.
func (a *Acquisition) refreshInterval() time.Duration {
	poll := a.settings.WatchedPoll
	return max(poll, min(poll*time.Duration(a.client.refreshRounds()), maxRefreshInterval))
}

// queueFor is how long a position lasts without another request: three of them may fail.
func (a *Acquisition) queueFor() time.Duration {
	return min(max(4*a.refreshInterval(), minQueueFor), driver.MaxTTL)
}

// Abandon cleans up every request that is in doubt. The acquisition is over then.
func (a *Acquisition) Abandon() { a.abandonOthers(nil) }

// abandonOthers cleans up the requests in doubt of all attempts but the one that was granted.
func (a *Acquisition) abandonOthers(granted *Attempt) {
	for _, t := range a.Attempts {
		if t != granted {
			t.abandon()
		}
	}
}

// WaitEnded returns an error that says both why waiting ended and what kept the lock, if that
// is known. After Shutdown it is cause.ErrShutdown.
func (c *Client) WaitEnded(ctx context.Context, name string, kept error) error {
	if c.closing.Err() != nil {
		return cause.ErrShutdown
	}
	why := cause.Of(ctx)
	if kept == nil {
		return driver.Errorf("holdfast: lock %q: waiting ended: %w", name, why)
	}
	return driver.Errorf("holdfast: lock %q: waiting ended: %w; %w", name, why, kept)
}
