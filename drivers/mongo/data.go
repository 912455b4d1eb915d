package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// ReadData implements [driver.DataStore]. It reads with read concern "majority".
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	o := op{verb: "read data", name: name, invalid: driver.ValidateName(name, limits)}
	err = l.do(ctx, o, func(ctx context.Context) error {
		_, r, err := readRecord(ctx, l.majority, name, withData)
		if r == nil {
			return err
		}
		at = r.dataRevision()
		if len(r.data) > 0 {
			data = r.data
		}
		return nil
	})
	return data, at, err
}

// WriteData implements [driver.DataStore]. An expired lease does not hold its lock; a broken
// one does until it expires.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	o := leaseOp("write data", lease, false)
	o.invalid = driver.ValidateWriteData(lease, data, limits)
	return l.do(ctx, o, func(ctx context.Context) error {
		// Promise 8: the server's clock decides whether the lease has expired.
		unexpired := field("$expr", expr("$gt", ref(fieldExpiresAt), serverNow))
		change := doc{field("$set", docOf(fieldData, binary(data))), field("$inc", docOf(fieldWrites, int64(1)))}
		if len(data) == 0 {
			change[0] = field("$unset", docOf(fieldData, 1))
		}
		outcome := driver.ErrLost
		lease.Mode = driver.Exclusive // the data belong to all readers, so none of them writes
		// Promise 5: the filter has the revision of the data, so a write that arrives late
		// matches nothing.
		matched, err := l.updateHeld(ctx, lease, heldBy(lease, unexpired, sameData(at)), change, func(r *record) bool {
			if r.describe().State != driver.StateHeld {
				return false
			}
			if r.dataRevision() != at {
				outcome = driver.ErrConflict
				return false
			}
			return true
		})
		if matched || err != nil {
			return err
		}
		return outcome
	})
}
