package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Calls are the times of single calls.
type Calls struct{ Acquire, Renew, Release Samples }

// Round takes a free lock, renews it once and releases it.
func (c *Calls) Round(ctx context.Context, client *holdfast.Client, name string) error {
	begin := time.Now()
	hold, err := client.TryLock(ctx, name)
	if err != nil {
		return err
	}
	c.Acquire.Add(time.Since(begin))
	defer hold.Release(context.WithoutCancel(ctx)) //nolint:errcheck // the second release, unless the renewal failed
	begin = time.Now()
	if err := client.Locker().Renew(ctx, hold.Lease()); err != nil {
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

// settling is how long a waiter is left alone before the release that it waits for,
// so that it does wait.
const settling = 50 * time.Millisecond

// HandOvers passes one lock to and fro between two clients, and adds how long after
// the beginning of the release in one the waiting other has it. between, if any,
// is called before each: what is to be compared with it is best measured in turn.
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
		next := lockLater(ctx, clients[(i+1)%2], name)
		if err := sleep(ctx, settling); err != nil {
			<-next
			return err
		}
		begin := time.Now()
		err := held.Release(ctx)
		got := <-next
		if got.err != nil {
			return fmt.Errorf("hand-over: %w", got.err)
		}
		held = got.hold
		if err != nil {
			return err
		}
		times.Add(got.at.Sub(begin))
	}
	return nil
}

// grant is what a waiter got, and when.
type grant struct {
	hold *holdfast.Hold
	at   time.Time
	err  error
}

func lockLater(ctx context.Context, client *holdfast.Client, name string) <-chan grant {
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
