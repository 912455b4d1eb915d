package baseline

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench"
)

// HandOvers passes a lock on n times, and adds how long after the beginning of each
// release a waiter that tries every so often has it. The releases come at any moment
// between two tries.
func HandOvers(ctx context.Context, l Lock, n int, every time.Duration, times *bench.Samples) error {
	holder := newID()
	if err := Wait(ctx, l, holder, every); err != nil {
		return err
	}
	for range n {
		next, id := make(chan error, 1), newID()
		var got time.Time
		go func() {
			err := Wait(ctx, l, id, every)
			got = time.Now()
			next <- err
		}()
		time.Sleep(every/10 + mathrand.N(every))
		begin := time.Now()
		err := l.Release(ctx, holder)
		if late := <-next; late != nil {
			return late
		}
		if err != nil {
			return err
		}
		times.Add(got.Sub(begin))
		holder = id
	}
	return l.Release(ctx, holder)
}

// TakeOver has a holder crash, and adds how long after the expiry of its lease, by the
// clock of this machine, a waiter that tries every so often has the lock.
func TakeOver(ctx context.Context, l Lock, ttl, every time.Duration, times *bench.Samples) error {
	begin := time.Now()
	if got, err := l.Try(ctx, newID()); !got || err != nil {
		return fmt.Errorf("the lock to crash with was not to be had: %v, %w", got, err)
	}
	next := newID()
	if err := Wait(ctx, l, next, every); err != nil {
		return err
	}
	times.Add(time.Since(begin) - ttl)
	return l.Release(ctx, next)
}

// newID looks like the UUIDs that Azure wants.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
