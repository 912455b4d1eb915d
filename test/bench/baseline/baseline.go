// Package baseline contains what Holdfast is compared with: simple ways of waiting for a lock that
// programs use today.
package baseline

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Lock is a lock.
type Lock interface {
	// Try makes one attempt for a holder with this ID and reports whether it has the lock.
	Try(ctx context.Context, id string) (bool, error)
	// Release releases the lock if the holder with this ID has it.
	Release(ctx context.Context, id string) error
}

// Wait tries at once and then at every interval until it has the lock: the loop that most programs
// have.
func Wait(ctx context.Context, l Lock, id string, interval time.Duration) error {
	tick := time.NewTicker(interval)
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

// Plain is a lock of a Locker, used without a Client.
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
