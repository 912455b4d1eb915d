package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Crash is a lease that is neither renewed nor released, like that of a crashed holder.
type Crash struct {
	Name string
	// Expiry is when the lease expires on the backend, by this process's clock. It is
	// computed from the record, read right after the grant, and can only be too early.
	// Without the remaining time in the record it is one TTL after the request was sent.
	Expiry time.Time

	lease  holdfast.Lease
	locker holdfast.Locker
}

// NewCrash acquires a lock for a holder that crashes at once. Its requests outlive ctx, so that
// the outcome of each is known.
func NewCrash(ctx context.Context, locker holdfast.Locker, name string, ttl time.Duration) (*Crash, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	c := &Crash{Name: name, lease: holdfast.Lease{Name: name, ID: driver.NewLeaseID(newID()), TTL: ttl}, locker: locker}
	sent := time.Now()
	if _, err := locker.TryAcquire(ctx, driver.Request{Name: name, ID: c.lease.ID, Owner: "crashed", TTL: ttl}); err != nil {
		return nil, errors.Join(err, c.Release(ctx))
	}
	c.Expiry = sent.Add(ttl)
	inspected := time.Now()
	r, err := locker.Inspect(ctx, name)
	if err != nil {
		return nil, errors.Join(err, c.Release(ctx))
	}
	if r.RemainingKnown {
		c.Expiry = inspected.Add(r.Remaining)
	}
	return c, nil
}

// Release releases the lease if it has not expired. It outlives ctx.
func (c *Crash) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return c.locker.Release(ctx, c.lease)
}

// releaseTimeout bounds the release of one lock.
const releaseTimeout = 10 * time.Second

// TakeOvers lets n holders crash at moments spread over a time. It adds the times from the expiry
// of each lease until a waiting client holds the lock. The error is the first one of a takeover: the end of ctx alone would not say
// that a lock was never granted.
func TakeOvers(ctx context.Context, crashed holdfast.Locker, waiting *holdfast.Client, prefix string, n int, ttl, spread time.Duration,
	times *Samples) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i := range n {
		wg.Go(func() {
			err := sleep(ctx, spread*time.Duration(i)/time.Duration(n))
			if err == nil {
				err = takeOver(ctx, crashed, waiting, fmt.Sprint(prefix, "crash-", i), ttl, times)
			}
			if err != nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

func takeOver(ctx context.Context, crashed holdfast.Locker, waiting *holdfast.Client, name string, ttl time.Duration,
	times *Samples) error {
	crash, err := NewCrash(ctx, crashed, name, ttl)
	if err != nil {
		return err
	}
	hold, err := waiting.Lock(ctx, name)
	if err != nil {
		return errors.Join(err, crash.Release(ctx))
	}
	times.Add(time.Since(crash.Expiry))
	return hold.Release(ctx)
}

// newID returns a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
