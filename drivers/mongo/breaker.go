package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]. The filter of a renewal does not match a broken record.
func (l *Locker) Break(ctx context.Context, name string, token uint64) error {
	return l.breakHolder(ctx, name, token, breakUpdate)
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, token uint64) error {
	return l.breakHolder(ctx, name, token, freeUpdate)
}

// breakHolder changes the record of the present holder.
func (l *Locker) breakHolder(ctx context.Context, name string, token uint64, change any) error {
	o := op{verb: "break", name: name, invalid: driver.ValidateName(name, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		raw, r, err := readWoken(ctx, l.linearizable, name)
		if err != nil || r == nil || r.leaseID == "" {
			return err
		}
		if err := r.describe().CheckToken(token); err != nil {
			return err
		}
		// Promise 6: the filter has the holder's lease ID, so a break that arrives late cannot
		// free the lock of the next holder.
		holder := driver.Lease{Name: name, ID: driver.NewLeaseID(r.leaseID)}
		_, err = l.updateHeld(ctx, holder, heldBy(holder), change, func(*record) bool { return true })
		if err != nil {
			return redactIDs(err, []string{r.leaseID})
		}
		l.wakeWaiters(ctx, name, wokenWaiters(raw))
		return nil
	})
}
