// Package migrating moves a running fleet from another lock to Holdfast without a moment of two
// holders.
//
// A [Locker] takes two locks for each acquisition: the old one, which the programs that are not
// migrated yet respect, and then the new one. It renews both, and the loss of either is a loss.
// So a fleet moves in two rollouts:
//
//  1. Programs with the old lock are replaced by programs with both locks. They exclude each other
//     by the old lock.
//  2. When no program with the old lock alone is left, programs with both locks are replaced by
//     programs with the new lock alone. They exclude each other by the new lock.
//
// An [Old] lock is one of package [github.com/holdfast-go/holdfast/migrating/mongolock], which has
// the documents of ShedLock and those of one's own collection, or of package drivers/postgres/advisory, which has the
// advisory locks of PostgreSQL, of package drivers/mysql/oldlocks, which has ShedLock's table and the locks of GET_LOCK, of package
// drivers/aws/dynamodb/oldlocks, which has the rows of amazon-dynamodb-lock-client and dynamolock, or that of
// another Holdfast backend (see [FromLocker]), or the program's own implementation.
package migrating

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Option configures a [Locker]. A nil option is an error.
type Option func(*Locker)

// WithOldName names the old lock of each new one; for "" there is none, and the new lock alone is
// taken. The default is the same name. nil is an error.
//
// Names that share an old lock exclude each other: LockAll of two of them, and Do within Do, deadlock. The function also
// gets the names of slots, such as "job#2".
func WithOldName(name func(name string) string) Option {
	return func(l *Locker) { l.oldName = name }
}

// Locker takes an old lock and then a new one. It is a driver.Locker for holdfast.New.
type Locker struct {
	old     Old
	new     driver.Locker
	info    driver.Info
	oldName func(string) string
	closed  atomic.Bool
}

var _ driver.Locker = (*Locker)(nil)

// callTimeout bounds a call if the context has no limit.
const callTimeout = 10 * time.Second

// New returns a Locker. The error is a *driver.InvalidError if an argument or an option is nil, and if
// no TTL suits both locks.
func New(locker driver.Locker, old Old, opts ...Option) (*Locker, error) {
	switch {
	case locker == nil:
		return nil, driver.Invalid("locker", "nil", "the Locker of the new locks")
	case old == nil:
		return nil, driver.Invalid("old", "nil", "the old lock")
	}
	l := &Locker{old: old, new: driver.Intercept(locker, withoutRevisions), oldName: func(name string) string { return name }}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "an Option of this package")
		}
		o(l)
	}
	if l.oldName == nil {
		return nil, driver.Invalid("WithOldName", "nil", "a function that returns the name of the old lock")
	}
	l.info = l.weaker(locker.Info(), old.Info())
	if l.info.Limits.MinTTL > l.info.Limits.MaxTTL {
		return nil, driver.Invalid("old", "with TTLs "+ttls(old.Info().Limits), "a lock with TTLs in the range of the new one, "+
			ttls(locker.Info().Limits))
	}
	return l, nil
}

// longestTTL is the longest TTL that a lock allows.
func longestTTL(l driver.Limits) time.Duration { return cmp.Or(l.MaxTTL, driver.MaxTTL) }

func ttls(l driver.Limits) string {
	return "from " + driver.FormatDuration(l.MinTTL) + " to " + driver.FormatDuration(longestTTL(l))
}

// weaker is what both locks promise. The records are those of the new lock.
func (l *Locker) weaker(both, old driver.Info) driver.Info {
	both.Limits.MinTTL = max(both.Limits.MinTTL, old.Limits.MinTTL)
	both.Limits.MaxTTL = min(longestTTL(both.Limits), longestTTL(old.Limits))
	both.Limits.TTLStep = max(both.Limits.TTLStep, old.Limits.TTLStep)
	both.Expiry, both.Failover = min(both.Expiry, old.Expiry), min(both.Failover, old.Failover)
	both.FixedTTL = both.FixedTTL || old.FixedTTL
	both.Modes = driver.Modes{} // a Claim has no mode
	oldQueue, newQueue := l.queues()
	both.Turn = max(both.Turn, old.Turn)
	both.WakesOnlyQueue = oldQueue != nil || newQueue != nil
	// Nothing reports the releases of a lock without a queue.
	both.WakesInPart = both.WakesInPart || old.WakesInPart || (oldQueue == nil) != (newQueue == nil)
	return both
}

func (l *Locker) claim(name, owner string, id driver.LeaseID, ttl time.Duration) Claim {
	const proofBytes = 16
	sum := sha256.Sum256([]byte("holdfast old lock of " + id.Reveal()))
	return Claim{Name: l.oldName(name), Owner: owner, Proof: hex.EncodeToString(sum[:proofBytes]), TTL: ttl}
}

// TryAcquire implements [driver.Locker]. The old lock comes first: all programs take the two in
// the same order, and one that is refused has disturbed nobody who waits for the new lock.
//
// A refusal ends the use of the request's ID. The proof of the old lock is made from the ID alone, so
// that any Locker can renew and release the lease, and the release of the old lock can arrive late.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := l.check(req.Validate(l.info)); err != nil {
		return driver.Lease{}, opError("acquire", req.Name, err)
	}
	claim := l.claim(req.Name, req.Owner, req.ID, req.TTL)
	if claim.Name == "" {
		return l.new.TryAcquire(ctx, req)
	}
	claim.Waiter, claim.QueueFor = req.Waiter, req.QueueFor
	// Promise 1: without the old lock, a program that is not migrated may hold it.
	if err := withLimit(ctx, func(ctx context.Context) error { return l.old.Acquire(ctx, claim) }); err != nil {
		var held *driver.HeldError
		if !errors.As(err, &held) {
			return driver.Lease{}, opError("acquire", req.Name, err)
		}
		record := held.Record
		record.Name, record.State, record.Token, record.Revision = req.Name, driver.StateHeld, 0, driver.Revision{}
		// Promise 10: after a lost answer the new lock may be this request's. The caller releases it with
		// the ID.
		return driver.Lease{}, driver.WithIDReleased(opError("acquire", req.Name, &driver.HeldError{Record: record, Reserved: held.Reserved}))
	}
	lease, err := l.new.TryAcquire(ctx, req)
	if op := (*driver.OpError)(nil); driver.NotSent(err) && errors.As(err, &op) {
		half := *op // Promise 5: the old lock is taken
		half.NotSent = false
		err = &half
	}
	if err == nil || !driver.OutcomeKnown(err) {
		return lease, err // Release frees both
	}
	if failed := withLimit(ctx, func(ctx context.Context) error { return l.old.Release(ctx, claim) }); failed != nil {
		// The outcome is unknown, whatever the causes.
		err = opError("acquire", req.Name, driver.Errorf("the old lock was not released: %v; the new one: %v", failed, err))
	}
	// Promise 1: a second copy of this release may still be under way.
	return driver.Lease{}, driver.WithIDReleased(err)
}

// Renew implements [driver.Locker]: the loss of either lock is a loss. A lease's State is that of the new
// lock; the old one does without. The two are renewed at the same
// time, so that one backend that is slow does not keep the other lock from being renewed.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	invalid := driver.ValidateRenew(lease, l.info.Limits)
	if err := l.check(invalid); err != nil {
		return driver.Lease{}, opError("renew", lease.Name, err)
	}
	claim := l.claim(lease.Name, lease.Owner, lease.ID, lease.TTL)
	if claim.Name == "" {
		return l.new.Renew(ctx, lease)
	}
	var next driver.Lease
	renewed, err := both(ctx, 0,
		func(ctx context.Context) (err error) { next, err = l.new.Renew(ctx, lease); return err },
		func(ctx context.Context) error { return l.old.Renew(ctx, claim) })
	if err != nil {
		err = opError("renew", lease.Name, err)
	}
	if errors.Is(renewed, driver.ErrLost) || err == nil {
		return next, renewed
	}
	// Promise 1: the holder of the new lock is none without the old one.
	return driver.Lease{}, err
}

// Release implements [driver.Locker]. The new lock is released first: a waiter that the release of
// the old lock wakes finds both free. If the backend of the new one does not answer, the old lock is
// released all the same.
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	if err := l.check(driver.ValidateName(lease.Name, l.info.Limits)); err != nil {
		return opError("release", lease.Name, err)
	}
	claim := l.claim(lease.Name, lease.Owner, lease.ID, lease.TTL)
	if claim.Name == "" {
		return l.new.Release(ctx, lease)
	}
	released, err := both(ctx, limitOf(ctx)/2,
		func(ctx context.Context) error { return l.new.Release(ctx, lease) },
		func(ctx context.Context) error { return l.old.Release(ctx, claim) })
	if err != nil {
		err = opError("release", lease.Name, err)
	}
	if err == nil || !driver.OutcomeKnown(released) || released != nil && errors.Is(err, driver.ErrLost) {
		return released // that the old lock is lost does not free the new one
	}
	return err
}

// check returns the error of a call's arguments, or that of a closed Locker.
func (l *Locker) check(err error) error {
	if err == nil && l.closed.Load() {
		return driver.ErrClosed
	}
	return err
}

// limitOf is how much time a call has.
func limitOf(ctx context.Context) time.Duration {
	if deadline, bounded := ctx.Deadline(); bounded {
		return time.Until(deadline)
	}
	return callTimeout
}

// withLimit makes a call with a time limit.
func withLimit(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limitOf(ctx))
	defer cancel()
	return call(ctx)
}

// both makes two calls with one time limit, and waits for both. The second one begins when the first
// has ended, or after patience.
func both(ctx context.Context, patience time.Duration, first, second func(context.Context) error) (one, two error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		one = withLimit(ctx, first)
	}()
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-ended:
	case <-wait.C:
	}
	two = withLimit(ctx, second)
	<-ended
	return one, two
}

func opError(op, name string, err error) error {
	return &driver.OpError{Op: op, Backend: "the old lock", Name: name, Err: err}
}

// Inspect implements [driver.Locker]. It describes the new lock, which is free while a program
// that is not migrated holds the old one. The record has no Revision.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	return l.new.Inspect(ctx, name)
}

// withoutRevisions takes the Revision from the records of the new locks: a takeover by
// [driver.Request.Replace] would need one of the old lock, too.
func withoutRevisions(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	if yield := call.Yield; yield != nil {
		call.Yield = func(r driver.Record, err error) bool {
			r.Revision = driver.Revision{}
			return yield(r, err)
		}
	}
	a := next(ctx, call)
	a.Record.Revision = driver.Revision{}
	if held := (*driver.HeldError)(nil); errors.As(a.Err, &held) {
		held.Record.Revision = driver.Revision{}
	}
	return a
}

// Info implements [driver.Locker]. The Locker promises what both of its locks promise. The Backend is that of the
// new one, and so are the records.
func (l *Locker) Info() driver.Info { return l.info }

// Unwrap returns the Locker of the new locks, which has the tokens. The guards of drivers use it.
func (l *Locker) Unwrap() driver.Locker {
	if l == nil {
		return nil
	}
	return l.new
}

// Capabilities implements [driver.Locker]: what reads stays, the data of a lock, and the queues of both
// locks. Batches of renewals and of releases and handoffs would pass the old lock by, and BreakNow could not free it. An operator
// breaks the new lock with the command; the holder then releases both. Waking
// by the new lock would not report the release of the old one, but waiters poll rarely while they are woken.
func (l *Locker) Capabilities() driver.Capabilities {
	from := l.new.Capabilities()
	c := driver.Capabilities{Lister: from.Lister, DataStore: from.DataStore}
	if old, ofNew := l.queues(); old != nil || ofNew != nil {
		q := queues{l, old, ofNew}
		c.Waker, c.Queue = q, q
	}
	return c
}

// queues returns those of both locks, nil if a lock has none.
func (l *Locker) queues() (old, ofNew Queue) {
	old, _ = l.old.(Queue)
	return old, queueOf(l.new.Capabilities())
}

// Close implements [driver.Locker]. It closes the new Locker; the old lock stays the caller's.
func (l *Locker) Close(ctx context.Context) error {
	l.closed.Store(true)
	return l.new.Close(ctx)
}
