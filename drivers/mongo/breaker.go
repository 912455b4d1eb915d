package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]: the filter of a renewal refuses a broken
// record.
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.breakWith(ctx, name, counted(field("$set", is(fieldBroken, true))))
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	return l.breakWith(ctx, name, liberation)
}

// breakWith changes the record of the holder that it finds, by its ID: a command that
// arrives late must not reach the next holder.
func (l *Locker) breakWith(ctx context.Context, name string, change any) error {
	o := op{verb: "break", name: name, invalid: driver.ValidateName(name, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		r, err := read(ctx, l.exact, name, facts)
		if err != nil || r == nil || r.kid == "" {
			return err
		}
		holder := driver.Lease{Name: name, ID: driver.NewLeaseID(r.kid)}
		_, err = l.change(ctx, holder, heldBy(holder), change, func(*record) bool { return true })
		if err != nil {
			return withoutIDs(err, []string{r.kid})
		}
		return nil
	})
}
