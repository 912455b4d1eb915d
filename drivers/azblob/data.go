package azblob

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast"
)

// ReadData implements [holdfast.DataStore]: the data are the blob's contents.
func (l *Locker) ReadData(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := l.do(ctx, op{verb: "read data", name: name, invalid: holdfast.ValidateName(name, limits), size: limits.MaxData}, func(ctx context.Context) (err error) {
		_, data, err = l.download(ctx, l.target(name, ""))
		if hasCode(err, codesGone...) {
			return nil
		}
		return err
	})
	return data, err
}

// WriteData implements [holdfast.DataStore]. The service itself refuses a holder
// whose lease has ended, since the request carries the lease ID.
func (l *Locker) WriteData(ctx context.Context, held holdfast.Lease, data []byte) error {
	invalid := holdfast.ValidateName(held.Name, limits)
	if invalid == nil {
		invalid = holdfast.ValidateData(data, limits)
	}
	return l.do(ctx, op{verb: "write data", name: held.Name, invalid: invalid, size: len(data)}, func(ctx context.Context) error {
		id, ok := canonical(held.ID.Reveal())
		if !ok {
			return holdfast.ErrLost
		}
		if data == nil {
			data = []byte{}
		}
		err := l.writeData(ctx, l.target(held.Name, id), data)
		if hasCode(err, codesLost...) {
			return holdfast.ErrLost
		}
		return err
	})
}

func (l *Locker) writeData(ctx context.Context, t target, data []byte) error {
	for range rounds {
		now, err := l.read(ctx, t)
		if err != nil {
			return err
		}
		if now.damage != nil {
			return now.damage
		}
		if now.foreign {
			return errForeign(t)
		}
		err = l.write(ctx, t, now.etag, now.record, data)
		if !hasCode(err, bloberror.ConditionNotMet) {
			return err
		}
	}
	return errChanging
}
