package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// asker takes one lock for one caller, or any one of its slots: it makes the attempts,
// remembers which of them ended in doubt, and decides when to ask again.
type Acquisition struct {
	client   *Client
	name     string
	settings settings.Settings
	Emit     func(event.Event)
	Attempts []*Attempt // one for each slot
	policy   *Policy    // of the hold to be

	Failures int   // rounds in a row that ended in an unknown outcome
	last     error // what kept the lock at the last attempt
}

// grant is a lease that was granted to an asker. start is just before the request was
// sent: the lease's time counts from there, since the backend's own count began no
// earlier.
type grant struct {
	lease        driver.Lease
	attempt      *Attempt
	start        time.Duration
	handoffUntil time.Duration // of the hold
}

func (c *Client) NewAcquisition(name string, s settings.Settings, emit func(event.Event)) *Acquisition {
	return c.NewSharedAcquisition(&Policy{Policy: renewal.Policy{Timing: s.Timing, Emit: emit, Overrun: s.Overrun}}, name, s)
}

// newAskerOn makes an asker whose hold has its terms in common with others.
func (c *Client) NewSharedAcquisition(t *Policy, name string, s settings.Settings) *Acquisition {
	a := &Acquisition{client: c, name: name, settings: s, Emit: t.Emit, policy: t, Attempts: make([]*Attempt, s.Slots)}
	for slot := range a.Attempts {
		a.Attempts[slot] = &Attempt{acquisition: a, slot: slot,
			req: driver.Request{Name: slotName(name, slot), ID: newLeaseID(), Owner: s.Owner, TTL: s.TTL, Data: s.Data}}
	}
	return a
}

// open lists the seats that this process does not hold itself, or all if it holds them
// all, from a random one on so that processes do not fight for the first. Those that failed
// come last: a damaged record keeps nobody from the other slots.
func (a *Acquisition) candidates() []*Attempt {
	if len(a.Attempts) == 1 {
		return a.Attempts
	}
	first := rand.N(len(a.Attempts))
	all := slices.Concat(a.Attempts[first:], a.Attempts[:first])
	taken := a.client.queues.taken(a.name)
	open := slices.DeleteFunc(slices.Clone(all), func(s *Attempt) bool { return slices.Contains(taken, s.slot) })
	if len(open) == 0 {
		open = all
	}
	return append(only(open, func(s *Attempt) bool { return !s.failed }), only(open, func(s *Attempt) bool { return s.failed })...)
}

// ask makes one attempt for each of the seats in turn, until one is granted. A failure
// ends it: a backend that fails is not asked n times. Of many seats the held ones are
// left out, where one read can tell.
func (a *Acquisition) Try(ctx context.Context, seats []*Attempt) (grant, error) {
	for first := true; len(seats) > 0; first = false {
		if !first && len(seats) > 1 {
			if seats = a.notHeld(ctx, seats); len(seats) == 0 {
				break
			}
		}
		g, err := a.request(ctx, seats[0])
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
		seats = seats[1:]
	}
	a.Failures = 0
	return grant{}, a.last
}

// notHeld drops the seats that one read shows to be held by others.
func (a *Acquisition) notHeld(ctx context.Context, seats []*Attempt) []*Attempt {
	inspector := a.client.capabilities.BatchInspector
	if inspector == nil {
		return seats
	}
	names := make([]string, len(seats))
	for i, s := range seats {
		names[i] = s.req.Name
	}
	ctx, cancel := context.WithTimeout(ctx, a.settings.RequestTimeout)
	defer cancel()
	records, errs := batchread.Inspect(ctx, inspector, names)
	var open []*Attempt
	for i, s := range seats {
		if s.SawRecord(records[i], errs[i]) {
			open = append(open, s)
		}
	}
	return open
}

// try makes one attempt for one seat.
func (a *Acquisition) request(ctx context.Context, s *Attempt) (grant, error) {
	return a.send(ctx, s, a.settings.RequestTimeout, a.client.locker.TryAcquire)
}

// attempt sends the request for one seat with a time limit.
func (a *Acquisition) send(ctx context.Context, s *Attempt, limit time.Duration, send func(context.Context, driver.Request) (driver.Lease, error)) (grant, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.req.Replace = s.stuck()
	start := a.client.now()
	got, err := send(limited, s.req)
	// Only the token is news: what was asked for is what is kept.
	lease := s.lease()
	lease.Token = got.Token
	if err == nil && a.client.now() >= a.settings.LossAt(start) {
		// This process was held up for so long that the lease is as good as gone.
		err = fmt.Errorf("holdfast: acquire %q: %w: the reply came too late", s.req.Name, driver.ErrLost)
	}
	a.noteOutcome(ctx, s, start, err)
	return grant{lease, s, start, handoffDeadline(start)}, err
}

// learn takes in the outcome of an attempt.
func (a *Acquisition) noteOutcome(ctx context.Context, s *Attempt, start time.Duration, err error) {
	a.last = err
	s.failed = err != nil && !errors.Is(err, driver.ErrHeld)
	switch {
	case err == nil:
	case ctx.Err() != nil: // whatever the error looks like: it may be the caller's own cause
		a.Failures++
		s.inDoubt.Note(start + a.settings.TTL)
	case errors.Is(err, driver.ErrHeld):
		a.last = a.allSlotsHeld(err)
		s.refused(err)
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
	default:
		a.Failures++
		s.inDoubt.Note(start + a.settings.TTL)
		a.Emit(event.Event{Type: event.Error, Name: s.req.Name, Op: "acquire", Err: err, Time: time.Now()})
		if errors.Is(err, driver.ErrLost) { // granted, but too late to be of use: that ID is done with
			s.abandon()
		}
	}
}

func (a *Acquisition) allSlotsHeld(err error) error { return allHeld(a.name, len(a.Attempts), err) }

// identify asks, once for each wait, who a holder is that the backend's refusals do not
// name, for people who want to know what is waited for.
func (a *Acquisition) Identify(ctx context.Context) {
	if slices.ContainsFunc(a.Attempts, func(s *Attempt) bool { return s.identified }) || !errors.Is(a.last, driver.ErrHeld) {
		return
	}
	i := slices.IndexFunc(a.Attempts, func(s *Attempt) bool { return s.refusedOnce })
	if i < 0 {
		return
	}
	holder, err := a.client.Inspect(ctx, a.Attempts[i].req.Name)
	if err != nil || holder.State != driver.StateHeld {
		holder = driver.Record{} // there is one, and that is all that is known
	}
	a.Attempts[i].report(holder)
}

// wait asks until the lock is granted, ctx ends, or the client shuts down. w is the
// caller's place in the queue.
func (a *Acquisition) waitUntilGranted(ctx context.Context, w *waiter) (grant, error) {
	alarm := make(chan struct{}, 1)
	g, err := a.first(ctx, w)
	for watched := false; ; {
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil: // a caller that has gone away
			return grant{}, a.client.WaitEnded(ctx, a.name, cmp.Or(a.client.queues.reason(w), err))
		case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
			return grant{}, err
		}
		a.Identify(ctx)
		a.client.queues.note(a.name, err)
		if !watched {
			defer a.watch(alarm)()
			watched = true
		}
		seats := a.waitForNext(ctx, alarm, w)
		if ctx.Err() != nil {
			return grant{}, a.client.WaitEnded(ctx, a.name, a.last)
		}
		g, err = a.Try(ctx, seats)
	}
}

// begin makes the first attempt.
func (a *Acquisition) first(ctx context.Context, w *waiter) (grant, error) {
	if w.offer != nil {
		return a.accept(ctx, w)
	}
	if yield := a.client.queues.yield(w) - a.client.now(); yield > 0 {
		select {
		case <-time.After(yield):
		case <-ctx.Done():
			return grant{}, ctx.Err()
		}
	}
	return a.Try(ctx, a.candidates())
}

// abandon has the lock cleaned up wherever a request of this asker may hold it.
func (a *Acquisition) Abandon() { a.abandonOthers(nil) }

func (a *Acquisition) abandonOthers(granted *Attempt) {
	for _, s := range a.Attempts {
		if s != granted {
			s.abandon()
		}
	}
}

// waitEnded says both why waiting ended and what kept the lock.
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
