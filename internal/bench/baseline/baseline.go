// Package baseline has what Holdfast is compared with: simple ways to wait for a lock
// that programs use today.
package baseline

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Lock is one lock as its users see it.
type Lock interface {
	// Try makes one attempt, for an ID of its own, and reports whether it has the lock.
	Try(ctx context.Context, id string) (bool, error)
	// Release gives it back.
	Release(ctx context.Context, id string) error
}

// Wait tries at once, and then again and again, until it has the lock: the loop that
// most programs have.
func Wait(ctx context.Context, l Lock, id string, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		got, err := l.Try(ctx, id)
		if got || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Plain is a lock of a Locker without a Client, for one user at a time.
type Plain struct {
	Locker holdfast.Locker
	Name   string
	TTL    time.Duration
}

// Try implements [Lock].
func (p Plain) Try(ctx context.Context, id string) (bool, error) {
	_, err := p.Locker.TryAcquire(ctx, driver.Request{Name: p.Name, ID: driver.NewLeaseID(id), Owner: "baseline", TTL: p.TTL})
	if errors.Is(err, holdfast.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Release implements [Lock].
func (p Plain) Release(ctx context.Context, id string) error {
	return p.Locker.Release(ctx, holdfast.Lease{Name: p.Name, ID: driver.NewLeaseID(id)})
}
