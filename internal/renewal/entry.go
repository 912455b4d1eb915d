package renewal

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Policy is what the leases of one caller, or of many, have in common.
type Policy struct {
	Timing  timing.Timing
	Emit    func(event.Event) // reports an event to the observers; must not block, since mutexes are held
	Overrun func(event.Event) // the user's hook, or nil
	Role    telemetry.Role
}

// Owner is what a lease is renewed for.
type Owner interface {
	// Cancel ends the hold's context. It is called for all leases that are lost at once, before Lost is called for any.
	Cancel(cause error)
	// Lost is called when the lease is lost or given up, and ends the hold's context, too. It must not block.
	Lost(cause error)
	// Renewed is called after a renewal, if renewals are measured. left is the time that was left
	// until the loss.
	Renewed(left time.Duration)
	// Overran is called when an overrun is reported.
	Overran()
}

// Entry is one lease that a Renewer renews.
type Entry struct {
	*Policy
	Lease driver.Lease // its State is guarded by Renewer.mu until Remove; see Renewer.Lease
	owner Owner

	// Hold.Err reads both without the mutex.
	start instant                // just before the last successful request was sent
	over  atomic.Pointer[ending] // of the renewals; nil before

	// The rest is guarded by Renewer.mu.
	next     time.Duration // when to renew
	phase    phase
	failures int32 // calls that failed since the last success
	index    int32 // in the Renewer's queue of entries; -1 outside
	queued   int32 // among the entries that wait for a call; -1: it does not
	call     *call // under way, or nil
	lastErr  error // of the latest failed call
}

// ending is the end of an entry's renewals.
type ending struct {
	why error
	at  time.Duration
}

// instant is a time of the elapsed-time clock.
type instant struct{ nanoseconds atomic.Int64 }

func (i *instant) load() time.Duration   { return time.Duration(i.nanoseconds.Load()) }
func (i *instant) store(t time.Duration) { i.nanoseconds.Store(int64(t)) }

type phase uint8

const (
	renewing phase = iota // renewed in time so far
	ended                 // lost or given up; its work may still run
	removed               // released, or its overrun was reported
)

// Init prepares an entry, before it is added.
func (e *Entry) Init(p *Policy, lease driver.Lease, owner Owner) {
	e.Policy, e.Lease, e.owner, e.index, e.queued = p, lease, owner, -1, -1
}

// LostErr says why the lease was lost or given up. It is nil as long as neither is known.
func (e *Entry) LostErr() error {
	if over := e.over.Load(); over != nil {
		return over.why
	}
	return nil
}

// LossAt is when the lease is lost unless it is renewed before.
func (e *Entry) LossAt() time.Duration { return e.Timing.LossAt(e.start.load()) }

// Report reports an event of the lease to the observers.
func (e *Entry) Report(t event.Type, op string, err error) { e.Emit(e.event(t, op, err)) }

func (e *Entry) event(t event.Type, op string, err error) event.Event {
	return event.Event{Type: t, Name: e.Lease.Name, Owner: e.Lease.Owner, Token: e.Lease.Token, Op: op, Err: err, Time: time.Now(),
		Shared: e.Lease.Mode == driver.Shared}
}

// countFrom counts the lease's time from a successful request that was sent at start.
func (e *Entry) countFrom(start time.Duration) {
	e.failures, e.lastErr = 0, nil
	e.start.store(start)
}

// idle reports whether the lease neither waits for a call nor has one under way.
func (e *Entry) idle() bool { return e.phase == renewing && e.queued < 0 && e.call == nil }

// late reports whether the lease's time is over.
func (e *Entry) late(now time.Duration) bool { return now >= e.LossAt() }

// timeToStop is how long there is, at least, from the end of a lease to the report of an overrun, unless the grace is shorter. After
// a pause of the process the end is noticed after the expiry, and what has no work that runs needs a moment to say so.
const timeToStop = 100 * time.Millisecond

// due is when the entry needs something next.
func (e *Entry) due() time.Duration {
	switch loss := e.LossAt(); {
	case e.phase == ended:
		return max(e.Timing.ExpiresAt(e.start.load()), e.over.Load().at+min(e.Timing.Grace, timeToStop))
	case e.idle():
		return min(e.next, loss)
	default:
		return loss
	}
}

// noteFailure plans the next call: later after each failure, and yet so early that there is
// time for further ones before the loss.
func (e *Entry) noteFailure(err error, now time.Duration) {
	e.call, e.lastErr = nil, err
	left := e.LossAt() - now
	// Promise 4: a failed renewal is not a loss; it is retried until the local deadline.
	e.next = now + min(e.Timing.Backoff(int(e.failures)), max(left/4, e.Timing.Share(300, time.Second)))
	e.failures++
}

// requestLimit is how long a call that begins now may take: at most half of the time left, so
// that a request that hangs does not take the last chance, unless half is too short for any
// answer. A call for this lease alone never outlives its loss.
func (e *Entry) requestLimit(now time.Duration) time.Duration {
	left := e.LossAt() - now
	return min(max(left/2, e.Timing.RequestTimeout/4), e.Timing.RequestTimeout, left)
}

// lateErr says why a lease was lost whose time is over. The failures before are included as
// text: the error matches the loss, not what failed.
func (e *Entry) lateErr() error {
	if e.lastErr == nil {
		return driver.Errorf("%q: %w: not renewed in time", e.Lease.Name, driver.ErrLost)
	}
	return driver.Errorf("%q: %w: not renewed in time; %d attempts failed, the last: %s", e.Lease.Name, driver.ErrLost, e.failures,
		driver.ErrorText(e.lastErr))
}
