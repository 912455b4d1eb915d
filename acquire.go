package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// asker takes one lock for one caller, or any one of its slots: it makes the attempts,
// remembers which of them ended in doubt, and decides when to ask again.
type asker struct {
	client   *Client
	name     string
	settings settings
	emit     func(Event)
	seats    []*seat // one for each slot
	terms    *terms  // of the hold to be

	failures int   // rounds in a row that ended in an unknown outcome
	last     error // what kept the lock at the last attempt
}

// grant is a lease that was granted to an asker. start is just before the request was
// sent: the lease's time counts from there, since the backend's own count began no
// earlier.
type grant struct {
	lease     Lease
	seat      *seat
	start     time.Duration
	passUntil time.Duration // of the hold
}

func (c *Client) newAsker(name string, s settings, emit func(Event)) *asker {
	return c.newAskerOn(&terms{policy: policy{timing: s.timing, emit: emit, overrun: s.overrun}}, name, s)
}

// newAskerOn makes an asker whose hold has its terms in common with others.
func (c *Client) newAskerOn(t *terms, name string, s settings) *asker {
	a := &asker{client: c, name: name, settings: s, emit: t.emit, terms: t, seats: make([]*seat, s.slots)}
	for slot := range a.seats {
		a.seats[slot] = &seat{asker: a, slot: slot,
			req: driver.Request{Name: slotName(name, slot), ID: newLeaseID(), Owner: s.owner, TTL: s.ttl, Data: s.data}}
	}
	return a
}

// open lists the seats that this process does not hold itself, or all if it holds them
// all, from a random one on so that processes do not fight for the first. Those that failed
// come last: a damaged record keeps nobody from the other slots.
func (a *asker) open() []*seat {
	if len(a.seats) == 1 {
		return a.seats
	}
	first := rand.N(len(a.seats))
	all := slices.Concat(a.seats[first:], a.seats[:first])
	taken := a.client.queues.taken(a.name)
	open := slices.DeleteFunc(slices.Clone(all), func(s *seat) bool { return slices.Contains(taken, s.slot) })
	if len(open) == 0 {
		open = all
	}
	return append(only(open, func(s *seat) bool { return !s.failed }), only(open, func(s *seat) bool { return s.failed })...)
}

// ask makes one attempt for each of the seats in turn, until one is granted. A failure
// ends it: a backend that fails is not asked n times. Of many seats the held ones are
// left out, where one read can tell.
func (a *asker) ask(ctx context.Context, seats []*seat) (grant, error) {
	for first := true; len(seats) > 0; first = false {
		if !first && len(seats) > 1 {
			if seats = a.notHeld(ctx, seats); len(seats) == 0 {
				break
			}
		}
		g, err := a.try(ctx, seats[0])
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrHeld) {
			return g, err
		}
		seats = seats[1:]
	}
	a.failures = 0
	return grant{}, a.last
}

// notHeld drops the seats that one read shows to be held by others.
func (a *asker) notHeld(ctx context.Context, seats []*seat) []*seat {
	inspector := a.client.capabilities.BatchInspector
	if inspector == nil {
		return seats
	}
	names := make([]string, len(seats))
	for i, s := range seats {
		names[i] = s.req.Name
	}
	ctx, cancel := context.WithTimeout(ctx, a.settings.tryTimeout)
	defer cancel()
	records, errs := readBatch(ctx, inspector, names)
	var open []*seat
	for i, s := range seats {
		if s.looked(records[i], errs[i]) {
			open = append(open, s)
		}
	}
	return open
}

// try makes one attempt for one seat.
func (a *asker) try(ctx context.Context, s *seat) (grant, error) {
	return a.attempt(ctx, s, a.settings.tryTimeout, a.client.locker.TryAcquire)
}

// attempt sends the request for one seat with a time limit.
func (a *asker) attempt(ctx context.Context, s *seat, limit time.Duration, send func(context.Context, driver.Request) (Lease, error)) (grant, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.req.Replace = s.stuck()
	start := a.client.now()
	got, err := send(limited, s.req)
	// Only the token is news: what was asked for is what is kept.
	lease := s.lease()
	lease.Token = got.Token
	if err == nil && a.client.now() >= a.settings.lossAt(start) {
		// This process was held up for so long that the lease is as good as gone.
		err = fmt.Errorf("holdfast: acquire %q: %w: the reply came too late", s.req.Name, ErrLost)
	}
	a.learn(ctx, s, start, err)
	return grant{lease, s, start, passesUntil(start)}, err
}

// learn takes in the outcome of an attempt.
func (a *asker) learn(ctx context.Context, s *seat, start time.Duration, err error) {
	a.last = err
	s.failed = err != nil && !errors.Is(err, ErrHeld)
	switch {
	case err == nil:
	case ctx.Err() != nil: // whatever the error looks like: it may be the caller's own cause
		a.failures++
		s.doubt.note(start + a.settings.ttl)
	case errors.Is(err, ErrHeld):
		a.last = a.full(err)
		s.refused(err)
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed):
	default:
		a.failures++
		s.doubt.note(start + a.settings.ttl)
		a.emit(Event{Type: EventError, Name: s.req.Name, Op: "acquire", Err: err, Time: time.Now()})
		if errors.Is(err, ErrLost) { // granted, but too late to be of use: that ID is done with
			s.abandon()
		}
	}
}

func (a *asker) full(err error) error { return allHeld(a.name, len(a.seats), err) }

// identify asks, once for each wait, who a holder is that the backend's refusals do not
// name, for people who want to know what is waited for.
func (a *asker) identify(ctx context.Context) {
	if slices.ContainsFunc(a.seats, func(s *seat) bool { return s.asked }) || !errors.Is(a.last, ErrHeld) {
		return
	}
	i := slices.IndexFunc(a.seats, func(s *seat) bool { return s.known })
	if i < 0 {
		return
	}
	holder, err := a.client.Inspect(ctx, a.seats[i].req.Name)
	if err != nil || holder.State != StateHeld {
		holder = Record{} // there is one, and that is all that is known
	}
	a.seats[i].tell(holder)
}

// wait asks until the lock is granted, ctx ends, or the client shuts down. w is the
// caller's place in the queue.
func (a *asker) wait(ctx context.Context, w *waiter) (grant, error) {
	alarm := make(chan struct{}, 1)
	g, err := a.begin(ctx, w)
	for watched := false; ; {
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil: // a caller that has gone away
			return grant{}, a.client.waitEnded(ctx, a.name, cmp.Or(a.client.queues.reason(w), err))
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed):
			return grant{}, err
		}
		a.identify(ctx)
		a.client.queues.note(a.name, err)
		if !watched {
			defer a.watch(alarm)()
			watched = true
		}
		seats := a.rest(ctx, alarm, w)
		if ctx.Err() != nil {
			return grant{}, a.client.waitEnded(ctx, a.name, a.last)
		}
		g, err = a.ask(ctx, seats)
	}
}

// begin makes the first attempt.
func (a *asker) begin(ctx context.Context, w *waiter) (grant, error) {
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
	return a.ask(ctx, a.open())
}

// abandon has the lock cleaned up wherever a request of this asker may hold it.
func (a *asker) abandon() { a.abandonBut(nil) }

func (a *asker) abandonBut(granted *seat) {
	for _, s := range a.seats {
		if s != granted {
			s.abandon()
		}
	}
}

// waitEnded says both why waiting ended and what kept the lock.
func (c *Client) waitEnded(ctx context.Context, name string, kept error) error {
	if c.closing.Err() != nil {
		return errShutdown
	}
	why := endOf(ctx)
	if kept == nil {
		return fmt.Errorf("holdfast: lock %q: waiting ended: %w", name, why)
	}
	return fmt.Errorf("holdfast: lock %q: waiting ended: %w; %w", name, why, kept)
}
