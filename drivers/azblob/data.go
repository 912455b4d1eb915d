package azblob

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
)

// ReadData implements [driver.DataStore]: the data are the blob's contents.
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = l.do(ctx, op{verb: "read data", name: name, invalid: driver.ValidateName(name, limits), size: limits.MaxData},
		func(ctx context.Context) error {
			blob, contents, err := l.download(ctx, l.lockBlob(name, ""))
			if hasCode(err, codesGone...) {
				return nil
			}
			if err != nil {
				return err
			}
			r, err := parse(blob.Metadata)
			data, at = contents, r.dataRevision()
			return err
		})
	if err != nil {
		return nil, driver.DataRevision{}, err
	}
	return data, at, nil
}

// WriteData implements [driver.DataStore]. The request has the lease ID, so the service itself
// refuses a holder whose lease has ended.
func (l *Locker) WriteData(ctx context.Context, held driver.Lease, data []byte, at driver.DataRevision) error {
	invalid := driver.ValidateWriteData(held, data, limits)
	return l.do(ctx, op{verb: "write data", name: held.Name, invalid: invalid, size: len(data)}, func(ctx context.Context) error {
		id, ok := canonicalID(held.ID.Reveal())
		if !ok {
			return driver.ErrLost
		}
		if data == nil {
			data = []byte{}
		}
		err := l.writeData(ctx, l.lockBlob(held.Name, id), data, at)
		if hasCode(err, codesLost...) {
			if isInDoubt(ctx) { // the data may have been written, and then the lease ended
				return errMayBeWritten
			}
			return driver.ErrLost
		}
		return err
	})
}

var errMayBeWritten = errors.New("the write may have been done, and the lease has ended")

// writeData writes the data if they have the revision at. A random mark in the record
// distinguishes this call's own request, whose answer was lost, from another's write.
func (l *Locker) writeData(ctx context.Context, b lockBlob, data []byte, at driver.DataRevision) error {
	mark := rand.Text()
	for round := range maxRounds {
		now, err := l.readProperties(ctx, b)
		if round == 0 {
			forgetDoubt(ctx) // that of the read: nothing was written so far
		}
		if err != nil {
			return err
		}
		if now.damage != nil {
			return now.damage
		}
		if now.foreign {
			return errForeign(b)
		}
		next := now.record
		switch found := now.record.dataRevision(); {
		case now.record.writeMark == mark:
			return nil
		case found == at:
			next.writes, next.writeMark = at.Writes+1, mark
		case round > 0 && found.Token == at.Token && found.Writes > at.Writes+1:
			return errChanging // this call's request may have been applied, and another's after it
		default:
			return driver.ErrConflict
		}
		// Promise 5: the request has the ETag of the compared revision, so a late one is refused.
		err = l.writeRecord(ctx, b, now.etag, next, data)
		if !hasCode(err, bloberror.ConditionNotMet) {
			return err
		}
	}
	return errChanging
}
