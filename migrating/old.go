package migrating

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Old is the lock that programs use which are not migrated yet. Its methods are safe for
// concurrent use, return soon after their context ends, and check nothing but what they need.
// Their context has the values of the caller's. A transaction in it, such as that of a MongoDB
// session, must be ignored: others would not see the lock before the commit.
// An error that matches none of driver.ErrHeld, driver.ErrLost and driver.ErrInvalid means that
// the outcome is unknown.
//
// If it is a [Queue] too, with the old locks' names, waiters have positions in the queue of the
// old lock; see [Claim.QueueFor].
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
	// Info returns what the lock declares. Of its Limits only those of the TTL matter; zero fields do not limit
	// anything. A [Locker] promises what both of its locks promise.
	Info() driver.Info
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
	// Waiter and QueueFor are those of the request; see [driver.Request]. An old lock without a queue ignores them.
	Waiter   driver.WaiterID
	QueueFor time.Duration
}

// FromLocker makes the locks of a Locker old ones: for a fleet that moves from one backend of
// Holdfast to another, or to another collection, container or prefix. [New] refuses the result for a
// nil Locker.
func FromLocker(locker driver.Locker) Old {
	if locker == nil {
		return nil
	}
	old := fromLocker{locker}
	if queue := queueOf(locker.Capabilities()); queue != nil {
		return fromQueue{old, queue}
	}
	return old
}

type fromLocker struct{ driver.Locker }

// fromQueue is for a Locker whose waiters queue.
type fromQueue struct {
	fromLocker
	Queue
}

// id returns the claim's lease ID. Azure Blob Storage accepts UUIDs only.
func (c Claim) id() driver.LeaseID {
	p := c.Proof
	return driver.NewLeaseID(p[:8] + "-" + p[8:12] + "-" + p[12:16] + "-" + p[16:20] + "-" + p[20:])
}

func (c Claim) lease() driver.Lease {
	return driver.Lease{Name: c.Name, ID: c.id(), Owner: c.Owner, TTL: c.TTL}
}

func (f fromLocker) Acquire(ctx context.Context, claim Claim) error {
	_, err := f.TryAcquire(ctx, driver.Request{Name: claim.Name, ID: claim.id(), Owner: claim.Owner, TTL: claim.TTL,
		Waiter: claim.Waiter, QueueFor: claim.QueueFor})
	return err
}

func (f fromLocker) Renew(ctx context.Context, claim Claim) error {
	_, err := f.Locker.Renew(ctx, claim.lease())
	return err
}

func (f fromLocker) Release(ctx context.Context, claim Claim) error {
	return f.Locker.Release(ctx, claim.lease())
}
