package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/engine/waiter"
	"github.com/holdfast-go/holdfast/internal/event"
)

// Grant is a lease that an acquisition was granted.
type Grant struct {
	lease   driver.Lease
	slot    int
	inDoubt waiter.InDoubt // a duplicate of the request may land
	start   time.Duration  // just before the request was sent; the lease's time counts from here
}

// Try sends the requests that are due, one after another and one for each slot, until one is granted.
// Any outcome but a refusal or a damaged record of one of several slots ends it, so that a failing
// backend is not called once for each slot. After a refusal, one read finds out which of the other
// slots are held, where the backend reads in batches.
func (a *Acquisition) Try(ctx context.Context) (Grant, error) {
	a.omitOwnSlots()
	for range a.slots {
		a.mu.Lock()
		slot, at := a.waiter.Next()
		a.mu.Unlock()
		if at > a.client.now() {
			break
		}
		g, err := a.send(ctx, slot)
		switch {
		case err == nil || ctx.Err() != nil:
			return g, err
		case errors.Is(err, driver.ErrHeld):
			a.inspectDue(ctx)
		case errors.Is(err, driver.ErrDamaged) && len(a.slots) > 1: // the other slots have records of their own
		default:
			return g, err
		}
	}
	return Grant{}, cmp.Or(a.lastErr(), driver.ErrHeld)
}

// omitOwnSlots has the slots left out that this process holds.
func (a *Acquisition) omitOwnSlots() {
	if len(a.slots) == 1 {
		return
	}
	held := a.client.queues.heldSlots(a.name)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.perform(a.waiter.Own(a.client.now(), held))
}

// inspectDue reads the records of the slots whose requests are due, if there are several: those that
// others hold need no request.
func (a *Acquisition) inspectDue(ctx context.Context) {
	inspector := a.client.capabilities.BatchInspector
	if inspector == nil || len(a.slots) == 1 {
		return
	}
	a.mu.Lock()
	due := a.waiter.Due(a.client.now())
	a.mu.Unlock()
	if len(due) < 2 {
		return
	}
	names := make([]string, len(due))
	for i, slot := range due {
		names[i] = a.slots[slot].name
	}
	ctx, cancel := context.WithTimeout(ctx, a.settings.RequestTimeout)
	defer cancel()
	records, errs := batchread.Inspect(ctx, inspector, a.lane().waiter, names)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, slot := range due {
		_, actions := a.waiter.Inspected(a.client.now(), slot, records[i], errs[i] != nil)
		a.perform(actions)
	}
}

// send sends the request for one slot with a time limit, and notes its outcome.
func (a *Acquisition) send(ctx context.Context, slot int) (Grant, error) {
	s := &a.settings
	limited, cancel := context.WithTimeout(ctx, s.RequestTimeout)
	defer cancel()
	a.mu.Lock()
	// Promise 2: the lease's time counts from before the request. The backend's own count begins
	// no earlier.
	start := a.client.now()
	id, queueFor, actions := a.waiter.Send(start, slot)
	a.perform(actions)
	req := driver.Request{Name: a.slots[slot].name, ID: id, Owner: s.Owner, TTL: s.TTL, Data: s.Data, Mode: s.Mode,
		Waiter: a.lane().waiter, QueueFor: queueFor}
	// Promise 10: the backend replaces a holder that has not renewed for one whole TTL of this
	// Client's elapsed time, whatever its expiry says, and only that very revision.
	req.Replace = a.client.sightings.Stuck(a.sighting(slot))
	contended := a.waiter.Refused(slot)
	if a.queued {
		a.lane().positions.note(func(p *waitqueue.Positions[asker]) { p.Sent(req.Name) })
	}
	a.mu.Unlock()
	if a.nobody {
		req.Waiter = ""
	}
	returned := false
	defer func() {
		if !returned { // the driver panicked: the request may have been sent
			a.noteOutcome(ctx, slot, errPanicked)
		}
	}()
	got, err := a.client.locker.TryAcquire(limited, req)
	returned = true
	if err == nil && a.client.now() >= s.LossAt(start) {
		// Promise 1: a grant that arrives after its own loss time never becomes a hold. The
		// lease may be another's by now.
		err = driver.Errorf("acquire %q: %w: the reply came too late", req.Name, driver.ErrLost)
	}
	inDoubt := a.noteOutcome(ctx, slot, err)
	// Promise 3: the backend alone makes tokens. The rest of the lease is what was requested.
	lease := driver.Lease{Name: req.Name, ID: id, Owner: s.Owner, TTL: s.TTL, Token: got.Token, Mode: req.Mode,
		Contended: got.Contended || contended, State: got.State}
	return Grant{lease, slot, inDoubt, start}, err
}

// noteOutcome notes the outcome of the request for a slot. It returns which requests with the ID of a
// grant are in doubt.
func (a *Acquisition) noteOutcome(ctx context.Context, slot int, err error) waiter.InDoubt {
	answer, report := waiter.Answer{IDReleased: errors.Is(err, driver.ErrIDReleased)}, false
	a.mu.Lock()
	defer a.mu.Unlock()
	name, before := a.slots[slot].name, a.last
	a.last = err
	switch {
	case err == nil:
	case ctx.Err() != nil && !refusesRequest(err, name) && !notSent(err, name): // it may be the cause of the caller's own context
		answer.Outcome = waiter.Unknown
		if errors.Is(before, driver.ErrHeld) {
			a.last = before // the end of the caller's context does not say why the lock was not granted
		}
	case errors.Is(err, driver.ErrHeld):
		a.noteHeld(err)
		answer.Outcome = waiter.Refused
		if held := (*driver.HeldError)(nil); errors.As(err, &held) {
			answer.Holder, answer.Reserved = &held.Record, held.Reserved
			if unread(held) && len(a.slots) == 1 && isBlocked(before) {
				a.last = before // this time nobody could be asked who keeps the request from an answer
			}
		}
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
		answer.Outcome, report = waiter.Failed, a.policy.Role != telemetry.Plain // runners, managers and Partitions report each failure
	case driver.Lasting(err): // it is certain, so nothing is in doubt
		answer.Outcome, answer.OnlySlot, report = waiter.Failed, errors.Is(err, driver.ErrDamaged), a.goesOn()
		if answer.OnlySlot && len(a.slots) > 1 && errors.Is(before, driver.ErrHeld) {
			a.last = before // a damaged record is not why the caller waits
		}
	case notSent(err, name):
		answer.Outcome, report = waiter.Failed, ctx.Err() == nil
	default:
		answer.Outcome, report = waiter.Unknown, true
		if errors.Is(err, driver.ErrLost) {
			answer.Outcome = waiter.TooLate
		}
	}
	if report {
		a.Emit(event.Event{Type: event.Error, Name: name, Op: "acquire", Err: err, Time: time.Now()})
	}
	inDoubt := a.waiter.InDoubt(slot)
	a.notePosition(name, answer)
	a.perform(a.waiter.Answered(a.client.now(), slot, answer))
	if err == nil {
		a.leave(slot)
	}
	return inDoubt
}

// notePosition notes what a request has shown of the position in the backend's queue. mu is held.
func (a *Acquisition) notePosition(name string, answer waiter.Answer) {
	if !a.queued {
		return
	}
	a.lane().positions.note(func(p *waitqueue.Positions[asker]) {
		switch answer.Outcome {
		case waiter.Granted:
			p.Granted(name)
		case waiter.Refused:
			position := 0
			if answer.Holder != nil {
				position = answer.Holder.Position
			}
			p.Refused(name, position)
		case waiter.Failed:
			p.Failed(name)
		}
	})
}

// unread reports whether a refusal names neither a holder nor what keeps the record from being read.
func unread(held *driver.HeldError) bool {
	return held.Record.Token == 0 && held.Record.Owner == "" && held.Record.Blocked == ""
}

// isBlocked reports whether err is a refusal that names what keeps the record from being read.
func isBlocked(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held) && held.Record.Blocked != ""
}

// refusesRequest reports whether err is the backend's refusal of a request for this name, and not the
// cause of the end of the caller's context, which may be the refusal of another lock.
func refusesRequest(err error, name string) bool {
	var op *driver.OpError
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.As(err, &op) && op.Name == name && (errors.Is(err, driver.ErrHeld) || driver.Lasting(err))
}

// notSent reports whether the request for this name certainly never left the process. An error of another name belongs to
// another call, and may be the cause of the end of the caller's context.
func notSent(err error, name string) bool {
	var op *driver.OpError
	return driver.NotSent(err) && errors.As(err, &op) && op.Name == name
}

// goesOn reports whether a lasting error ([driver.Lasting]) is reported and retried, instead of
// returned: the caller waits already, or it is a runner, a LeaseManager or Partitions. mu is held.
func (a *Acquisition) goesOn() bool { return a.answered || a.policy.Role != telemetry.Plain }

// Identify reads the record of a holder that the backend's refusals do not name, once, so that
// observers are notified of it.
func (a *Acquisition) Identify(ctx context.Context) {
	a.mu.Lock()
	slot, ok := a.waiter.Unidentified()
	ok = ok && errors.Is(a.last, driver.ErrHeld)
	a.mu.Unlock()
	if !ok {
		return
	}
	holder, err := a.client.Inspect(ctx, a.slots[slot].name)
	if err != nil || holder.State != driver.StateHeld {
		holder = driver.Record{} // there is a holder, and nothing more is known of it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.perform(a.waiter.Identified(slot, holder.Owner, holder.Token))
}
