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

// Crash is a lease that nobody renews or releases: what a crashed holder leaves.
type Crash struct {
	Name string
	// Expiry is when the backend lets another have the lock, by this process's clock:
	// as the record told soon after the grant, rather too early than too late. A backend
	// that does not tell has it a TTL after the acquire was sent, at the earliest.
	Expiry time.Time

	lease  holdfast.Lease
	locker holdfast.Locker
}

// NewCrash takes a lock as a holder does that crashes at once. Its requests outlive ctx,
// so that none is left whose outcome nobody knows.
func NewCrash(ctx context.Context, locker holdfast.Locker, name string, ttl time.Duration) (*Crash, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	c := &Crash{Name: name, lease: holdfast.Lease{Name: name, ID: driver.NewLeaseID(newID()), TTL: ttl}, locker: locker}
	sent := time.Now()
	if _, err := locker.TryAcquire(ctx, driver.Request{Name: name, ID: c.lease.ID, Owner: "crashed", TTL: ttl}); err != nil {
		return nil, errors.Join(err, c.Bury(ctx))
	}
	c.Expiry = sent.Add(ttl)
	asked := time.Now()
	r, err := locker.Inspect(ctx, name)
	if err != nil {
		return nil, errors.Join(err, c.Bury(ctx))
	}
	if r.RemainingKnown {
		c.Expiry = asked.Add(r.Remaining)
	}
	return c, nil
}

// Bury releases the lease if it is still there. It outlives its context.
func (c *Crash) Bury(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	return c.locker.Release(ctx, c.lease)
}

// cleaning bounds giving one lock back.
const cleaning = 10 * time.Second

// TakeOvers has n holders crash, at moments spread over a time, and adds how long after
// each lease's expiry a client that waits has the lock.
func TakeOvers(ctx context.Context, crashed holdfast.Locker, waiting *holdfast.Client, prefix string, n int, ttl, spread time.Duration, times *Samples) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := sleep(ctx, spread*time.Duration(i)/time.Duration(n))
			if err == nil {
				err = takeOver(ctx, crashed, waiting, fmt.Sprint(prefix, "crash-", i), ttl, times)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func takeOver(ctx context.Context, crashed holdfast.Locker, waiting *holdfast.Client, name string, ttl time.Duration, times *Samples) error {
	crash, err := NewCrash(ctx, crashed, name, ttl)
	if err != nil {
		return err
	}
	hold, err := waiting.Lock(ctx, name)
	if err != nil {
		return errors.Join(err, crash.Bury(ctx))
	}
	times.Add(time.Since(crash.Expiry))
	return hold.Release(ctx)
}

// newID is a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
