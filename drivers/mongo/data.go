package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

// ReadData implements [holdfast.DataStore]. It reads what a majority of the
// servers has.
func (l *Locker) ReadData(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	o := op{verb: "read data", name: name, invalid: holdfast.ValidateName(name, limits)}
	err := l.do(ctx, o, func(ctx context.Context) error {
		r, err := read(ctx, l.writes, name, everything)
		if r != nil && len(r.data) > 0 {
			data = r.data
		}
		return err
	})
	return data, err
}

// WriteData implements [holdfast.DataStore]. An expired lease does not hold; a
// broken one does until it expires.
func (l *Locker) WriteData(ctx context.Context, lease holdfast.Lease, data []byte) error {
	o := leaseOp("write data", lease, false)
	if o.invalid == nil {
		o.invalid = holdfast.ValidateData(data, limits)
	}
	return l.do(ctx, o, func(ctx context.Context) error {
		unexpired := field("$expr", call("$gt", ref(fieldExpiresAt), serverNow))
		change := counted(field("$set", is(fieldData, binary(data))))
		if len(data) == 0 {
			change = counted(field("$unset", is(fieldData, 1)))
		}
		matched, err := l.change(ctx, lease, heldBy(lease, unexpired), change,
			func(r *record) bool { return r.describe().State == holdfast.StateHeld })
		if matched || err != nil {
			return err
		}
		return holdfast.ErrLost
	})
}
