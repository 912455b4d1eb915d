package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// version of the record's format. A record of another version is refused.
const version = 1

// maxRecord is the largest record file, in bytes. No record is larger: base64 makes data a
// third longer, and JSON makes names and owners at most six times as long, also those of driver.MaxHolders readers.
const maxRecord = 2 << 20

// record is the content of NAME.json. The holder is the digest of a lease's ID, so that a
// reader of the file cannot act for the holder.
type record struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Machine string `json:"machine"`
	Boot    string `json:"boot"`
	// Used is when the record was written, by the clock of its boot. Retention is that of the
	// process that was last granted the lock.
	Used      time.Duration `json:"usedNanoseconds,omitempty"`
	Retention time.Duration `json:"retentionNanoseconds,omitempty"`
	lockrecord.Stored
}

func (r record) encode() ([]byte, error) {
	r.Past = r.HistoryText()
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	return append(content, '\n'), nil
}

// readRecord reads a record. Its errors name the file.
func (l *Locker) readRecord(ctx context.Context, path string) (record, error) {
	content, err := l.read(ctx, path, maxRecord)
	if err != nil {
		return record{}, err
	}
	rec, err := decode(content)
	if err != nil {
		return record{}, damaged(path, err)
	}
	return rec, nil
}

// read reads a file of at most maxBytes.
func (l *Locker) read(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	f, err := l.disk.open(ctx, path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", l.explainUnreadable(explain(path, err)))
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	l.absent.Store(false)
	if err := l.checkReadable(path, info); err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	if int64(len(content)) > maxBytes {
		return nil, damaged(path, fmt.Errorf("it has more than %d bytes", maxBytes))
	}
	return content, nil
}

// damaged returns the error for a record that cannot be used.
func damaged(path string, err error) error {
	return driver.Damaged(fmt.Errorf("the record %s is damaged or was not written by this program (%w): "+
		"restore it, or delete it when nobody holds the lock", path, err))
}

// decode returns an error for everything that is not a complete and consistent record.
func decode(content []byte) (record, error) {
	var rec record
	if err := lockrecord.Decode(content, &rec, &rec.Version, version); err != nil {
		return record{}, err
	}
	rec.ReadHistory()
	return rec, rec.check()
}

// check refuses a record that lacks a fact or has an impossible one.
func (r *record) check() error {
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case r.Boot == "" || r.Machine == "":
		return errors.New("it does not say on which machine and boot it was written")
	case r.Retention < 0:
		return errors.New("it has a negative retention")
	}
	return r.Check()
}
