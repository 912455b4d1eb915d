package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Calls are the durations of single calls.
type Calls struct{ Acquire, Renew, Release Samples }

// AcquireAndRelease returns the median of acquires, and that of releases, together.
func (c *Calls) AcquireAndRelease() time.Duration {
	return c.Acquire.Quantile(0.5) + c.Release.Quantile(0.5)
}

// Round acquires a free lock, renews it once and releases it.
func (c *Calls) Round(ctx context.Context, client *holdfast.Client, name string) error {
	begin := time.Now()
	hold, err := client.TryLock(ctx, name)
	if err != nil {
		return err
	}
	c.Acquire.Add(time.Since(begin))
	defer hold.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a second release, unless the renewal failed
	begin = time.Now()
	if _, err := client.Locker().Renew(ctx, hold.Lease()); err != nil {
		return err
	}
	c.Renew.Add(time.Since(begin))
	begin = time.Now()
	if err := hold.Release(ctx); err != nil {
		return err
	}
	c.Release.Add(time.Since(begin))
	return nil
}

// waitTime is how long a waiter has to begin its wait before the lock is released.
const waitTime = 50 * time.Millisecond

// HandOvers hands one lock over n times between two clients. It adds the times from the start of
// one client's release until the other one holds the lock. It calls between before each handoff,
// unless it is nil: so that what is compared with handoffs is measured alternately with them.
func HandOvers(ctx context.Context, clients [2]*holdfast.Client, name string, n int, times *Samples, between func() error) error {
	held, err := clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = held.Release(context.WithoutCancel(ctx)) }()
	for i := range n {
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		next := lockInBackground(ctx, clients[(i+1)%2], name)
		if err := sleep(ctx, waitTime); err != nil {
			<-next
			return err
		}
		begin := time.Now()
		err := held.Release(ctx)
		got := <-next
		if got.err != nil {
			return fmt.Errorf("handoff: %w", got.err)
		}
		held = got.hold
		if err != nil {
			return err
		}
		times.Add(got.at.Sub(begin))
	}
	return nil
}

// grant is the result of a waiter.
type grant struct {
	hold *holdfast.Hold
	at   time.Time
	err  error
}

// lockInBackground waits for the lock in a goroutine.
func lockInBackground(ctx context.Context, client *holdfast.Client, name string) <-chan grant {
	done := make(chan grant, 1)
	go func() {
		hold, err := client.Lock(ctx, name)
		done <- grant{hold, time.Now(), err}
	}()
	return done
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
