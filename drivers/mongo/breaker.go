package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]. The filter of a renewal does not match a broken record.
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.breakHolder(ctx, name, withChangeCount(field("$set", docOf(fieldBroken, true))))
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	return l.breakHolder(ctx, name, releaseUpdate)
}

// breakHolder changes the record of the present holder.
func (l *Locker) breakHolder(ctx context.Context, name string, change any) error {
	o := op{verb: "break", name: name, invalid: driver.ValidateName(name, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		raw, err := l.linearizable.FindOne(ctx, docOf(fieldName, name), options.FindOne().SetProjection(withWoken)).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := decodeRecord(raw)
		if err != nil || r.leaseID == "" {
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
