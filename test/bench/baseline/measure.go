package baseline

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
)

// HandOvers hands a lock over n times to waiters that try at every interval. It adds the times from
// the start of each release until the waiter has the lock. The releases come at random moments
// between two tries.
func HandOvers(ctx context.Context, l Lock, n int, interval time.Duration, times *bench.Samples) error {
	holder := rand.Text()
	if err := Wait(ctx, l, holder, interval); err != nil {
		return err
	}
	for range n {
		next, id := make(chan error, 1), rand.Text()
		var got time.Time
		go func() {
			err := Wait(ctx, l, id, interval)
			got = time.Now()
			next <- err
		}()
		time.Sleep(interval/10 + mathrand.N(interval))
		begin := time.Now()
		err := l.Release(ctx, holder)
		if waitErr := <-next; waitErr != nil {
			return waitErr
		}
		if err != nil {
			return err
		}
		times.Add(got.Sub(begin))
		holder = id
	}
	return l.Release(ctx, holder)
}

// TakeOver lets a holder crash. It adds the time from the expiry of its lease, by the clock of this
// machine, until a waiter that tries at every interval has the lock.
func TakeOver(ctx context.Context, l Lock, ttl, interval time.Duration, times *bench.Samples) error {
	begin := time.Now()
	if got, err := l.Try(ctx, rand.Text()); !got || err != nil {
		return fmt.Errorf("the holder that was to crash did not get the lock: %v, %w", got, err)
	}
	next := rand.Text()
	if err := Wait(ctx, l, next, interval); err != nil {
		return err
	}
	times.Add(time.Since(begin) - ttl)
	return l.Release(ctx, next)
}
