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
// the documents of ShedLock and those of one's own collection, or that of another Holdfast backend
// (see [FromLocker]), or the program's own implementation.
package migrating

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Old is the lock that programs use which are not migrated yet. Its methods are safe for
// concurrent use, return soon after their context ends, and check nothing but what they need.
// Their context has the values of the caller's. A transaction in it, such as that of a MongoDB
// session, must be ignored: others would not see the lock before the commit.
// An error that matches none of driver.ErrHeld, driver.ErrLost and driver.ErrInvalid means that
// the outcome is unknown.
type Old interface {
	// Acquire makes one attempt to take the lock for claim.TTL. If another holds it, the error is
	// a *driver.HeldError. A repeated Acquire with the same Proof succeeds while that claim holds
	// the lock.
	Acquire(ctx context.Context, claim Claim) error
	// Renew extends the lock to at least claim.TTL from now, if the claim still holds it. Otherwise
	// the error matches driver.ErrLost.
	Renew(ctx context.Context, claim Claim) error
	// Release frees the lock if the claim holds it, and does nothing otherwise.
	Release(ctx context.Context, claim Claim) error
	// Limits returns the TTLs that the lock accepts; zero fields do not limit anything.
	Limits() driver.Limits
}

// Claim is one acquisition of an old lock.
type Claim struct {
	// Name of the old lock.
	Name string
	// Owner is for people to read and proves nothing.
	Owner string
	// Proof differs for every acquisition: 32 hexadecimal digits. It is derived from the lease ID
	// and is no secret: the new lock cannot be released with it.
	Proof string
	TTL   time.Duration
}

// Option configures a [Locker].
type Option func(*Locker)

// WithOldName names the old lock of each new one; for "" there is none, and the new lock alone is
// taken. The default is the same name.
func WithOldName(name func(name string) string) Option {
	return func(l *Locker) { l.oldName = name }
}

// Locker takes an old lock and then a new one. It is a driver.Locker for holdfast.New.
type Locker struct {
	old     Old
	new     driver.Locker
	limits  driver.Limits
	oldName func(string) string
	inDoubt sync.Map // proofs of the requests to the new lock whose outcome is unknown
	closed  atomic.Bool
}

var _ driver.Locker = (*Locker)(nil)

// callTimeout bounds a call of an old lock if the context has no limit.
const callTimeout = 10 * time.Second

// New returns a Locker. The error is a *driver.InvalidError if no TTL suits both locks.
func New(locker driver.Locker, old Old, opts ...Option) (*Locker, error) {
	switch {
	case locker == nil:
		return nil, driver.Invalid("locker", "nil", "the Locker of the new locks")
	case old == nil:
		return nil, driver.Invalid("old", "nil", "the old lock")
	}
	l := &Locker{old: old, new: locker, limits: locker.Limits(), oldName: func(name string) string { return name }}
	for _, o := range opts {
		o(l)
	}
	limits := old.Limits()
	l.limits.MinTTL = max(l.limits.MinTTL, limits.MinTTL)
	if limits.MaxTTL != 0 {
		l.limits.MaxTTL = min(l.limits.MaxTTL, limits.MaxTTL)
	}
	if limits.TTLStep > l.limits.TTLStep {
		l.limits.TTLStep = limits.TTLStep
	}
	if l.limits.MinTTL > l.limits.MaxTTL {
		return nil, driver.Invalid("old", driver.FormatDuration(limits.MinTTL)+" to "+driver.FormatDuration(limits.MaxTTL),
			"a lock with TTLs in the range of the new one")
	}
	return l, nil
}

func (l *Locker) claim(name, owner string, id driver.LeaseID, ttl time.Duration) Claim {
	const proofBytes = 16
	sum := sha256.Sum256([]byte("holdfast old lock of " + id.Reveal()))
	return Claim{Name: l.oldName(name), Owner: owner, Proof: hex.EncodeToString(sum[:proofBytes]), TTL: ttl}
}

// TryAcquire implements [driver.Locker]. The old lock comes first: all programs take the two in
// the same order, and one that is refused has disturbed nobody who waits for the new lock.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := l.check(req.Validate(l.limits)); err != nil {
		return driver.Lease{}, opError("acquire", req.Name, err)
	}
	claim := l.claim(req.Name, req.Owner, req.ID, req.TTL)
	if claim.Name == "" {
		return l.new.TryAcquire(ctx, req)
	}
	// Promise 1: without the old lock, a program that is not migrated may hold it.
	if err := l.withOld(ctx, func(ctx context.Context) error { return l.old.Acquire(ctx, claim) }); err != nil {
		var held *driver.HeldError
		if errors.As(err, &held) {
			// Promise 10: after a lost answer the new lock may be this claim's, and nobody would release it.
			if _, doubt := l.inDoubt.Load(claim.Proof); doubt {
				if err := l.new.Release(ctx, driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL}); err != nil {
					return driver.Lease{}, err
				}
				l.inDoubt.Delete(claim.Proof)
			}
			record := held.Record
			record.Name, record.State, record.Token, record.Revision = req.Name, driver.StateHeld, 0, driver.Revision{}
			err = &driver.HeldError{Record: record}
		}
		return driver.Lease{}, opError("acquire", req.Name, err)
	}
	lease, err := l.new.TryAcquire(ctx, req)
	if !driver.OutcomeKnown(err) {
		l.inDoubt.Store(claim.Proof, nil)
		return lease, err // Release frees both
	}
	l.inDoubt.Delete(claim.Proof)
	if err == nil {
		return lease, nil
	}
	var held *driver.HeldError
	if errors.As(err, &held) {
		held.Record.Revision = driver.Revision{} // see Inspect
	}
	if failed := l.withOld(ctx, func(ctx context.Context) error { return l.old.Release(ctx, claim) }); failed != nil {
		return driver.Lease{}, opError("acquire", req.Name, driver.Errorf("the old lock was not released: %w; the new one: %v", failed, err))
	}
	return driver.Lease{}, err
}

// Renew implements [driver.Locker]: the loss of either lock is a loss.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) error {
	if err := l.check(driver.ValidateTTL(lease.TTL, l.limits)); err != nil {
		return opError("renew", lease.Name, err)
	}
	if claim := l.claim(lease.Name, lease.Owner, lease.ID, lease.TTL); claim.Name != "" {
		// Promise 1: the holder of the new lock is none without the old one.
		if err := l.withOld(ctx, func(ctx context.Context) error { return l.old.Renew(ctx, claim) }); err != nil {
			return opError("renew", lease.Name, err)
		}
	}
	return l.new.Renew(ctx, lease)
}

// Release implements [driver.Locker]. The old lock is released first: a waiter that the release of
// the new lock wakes finds both free.
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	if err := l.check(nil); err != nil {
		return opError("release", lease.Name, err)
	}
	var failed error
	if claim := l.claim(lease.Name, lease.Owner, lease.ID, lease.TTL); claim.Name != "" {
		l.inDoubt.Delete(claim.Proof)
		if err := l.withOld(ctx, func(ctx context.Context) error { return l.old.Release(ctx, claim) }); err != nil {
			failed = opError("release", lease.Name, err)
		}
	}
	return errors.Join(failed, l.new.Release(ctx, lease))
}

// check returns the error of a call's arguments, or that of a closed Locker.
func (l *Locker) check(err error) error {
	if err == nil && l.closed.Load() {
		return driver.ErrClosed
	}
	return err
}

// withOld calls the old lock, with a time limit.
func (l *Locker) withOld(ctx context.Context, call func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	return call(ctx)
}

func opError(op, name string, err error) error {
	return &driver.OpError{Op: op, Backend: "the old lock", Name: name, Err: err}
}

// Inspect implements [driver.Locker]. It describes the new lock, which is free while a program
// that is not migrated holds the old one. The record has no Revision: a takeover by
// [driver.Request.Replace] would need one of the old lock, too.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	r, err := l.new.Inspect(ctx, name)
	r.Revision = driver.Revision{}
	return r, err
}

// lister lists the new locks.
type lister struct{ driver.Lister }

func (l lister) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for r, err := range l.Lister.List(ctx, prefix) {
			r.Revision = driver.Revision{}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Limits implements [driver.Locker].
func (l *Locker) Limits() driver.Limits { return l.limits }

// Capabilities implements [driver.Locker]: what reads stays, and the data of a lock. Queues, batches and
// handoffs would pass the old lock by, and BreakNow could not free it. An operator breaks the new
// lock with the command; the holder then releases both. A Watcher of the new lock would not report
// the release of the old one, but waiters poll rarely while a Watcher works.
func (l *Locker) Capabilities() driver.Capabilities {
	from := l.new.Capabilities()
	c := driver.Capabilities{DataStore: from.DataStore, History: from.History}
	if from.Lister != nil {
		c.Lister = lister{from.Lister}
	}
	return c
}

// Close implements [driver.Locker]. It closes the new Locker; the old lock stays the caller's.
func (l *Locker) Close(ctx context.Context) error {
	l.closed.Store(true)
	return l.new.Close(ctx)
}

// FromLocker makes the locks of a Locker old ones: for a fleet that moves from one backend of
// Holdfast to another, or to another collection, container or prefix. [New] refuses the result for a
// nil Locker.
func FromLocker(locker driver.Locker) Old {
	if locker == nil {
		return nil
	}
	return fromLocker{locker}
}

type fromLocker struct{ driver.Locker }

// id returns the claim's lease ID. Azure Blob Storage accepts UUIDs only.
func (c Claim) id() driver.LeaseID {
	p := c.Proof
	return driver.NewLeaseID(p[:8] + "-" + p[8:12] + "-" + p[12:16] + "-" + p[16:20] + "-" + p[20:])
}

func (c Claim) lease() driver.Lease {
	return driver.Lease{Name: c.Name, ID: c.id(), Owner: c.Owner, TTL: c.TTL}
}

func (f fromLocker) Acquire(ctx context.Context, claim Claim) error {
	_, err := f.TryAcquire(ctx, driver.Request{Name: claim.Name, ID: claim.id(), Owner: claim.Owner, TTL: claim.TTL})
	return err
}

func (f fromLocker) Renew(ctx context.Context, claim Claim) error {
	return f.Locker.Renew(ctx, claim.lease())
}

func (f fromLocker) Release(ctx context.Context, claim Claim) error {
	return f.Locker.Release(ctx, claim.lease())
}
