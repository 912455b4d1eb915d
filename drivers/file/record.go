package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// version of the record's format. Another one is refused.
const version = 1

// maxRecord is more than any record can have: the data grow by a third in
// base64, and each byte of name and owner by six in JSON.
const maxRecord = 1 << 20

// record is the content of NAME.json. The holder is the digest of a lease's ID,
// so that who may read the file cannot act for the holder.
type record struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Machine string `json:"machine"`
	Boot    string `json:"boot"`
	// Used is when the record was written, by the clock of its boot. Retention is that of the
	// process that was last granted the lock. Older records lack both.
	Used      time.Duration `json:"usedNanoseconds,omitempty"`
	Retention time.Duration `json:"retentionNanoseconds,omitempty"`
	lockstate.Lock
}

// digest stands for a lease ID in records.
func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (r record) encode() ([]byte, error) {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	return append(content, '\n'), nil
}

// readRecord reads a record; its errors name the file.
func (l *Locker) readRecord(path string) (record, error) {
	content, err := l.read(path, maxRecord)
	if err != nil {
		return record{}, err
	}
	rec, err := decode(content)
	if err != nil {
		return record{}, damaged(path, err)
	}
	return rec, nil
}

// read reads a file of at most so many bytes.
func (l *Locker) read(path string, most int64) ([]byte, error) {
	f, err := l.disk.open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", explain(path, err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	if err := checkFile(path, info); err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	if int64(len(content)) > most {
		return nil, damaged(path, fmt.Errorf("it has more than %d bytes", most))
	}
	return content, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("the record %s is damaged or not of this program (%w): "+
		"restore it or, when nobody holds the lock, delete it", path, err)
}

// decode takes nothing for granted: what is not a whole record is an error.
func decode(content []byte) (record, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return record{}, errors.New("it is empty")
	}
	var peek struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &peek); err != nil {
		return record{}, err
	}
	if peek.Version != version {
		return record{}, fmt.Errorf("it has version %d, known is %d", peek.Version, version)
	}
	var rec record
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return record{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("there is more behind the record")
	}
	return rec, rec.check()
}

func (r record) check() error {
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case r.Boot == "" || r.Machine == "":
		return errors.New("it does not say on which machine and boot it was written")
	case r.Token == 0:
		return errors.New("it has no token")
	case r.Holder != "" && r.TTL <= 0:
		return errors.New("it has a holder, but no TTL")
	case r.Retention < 0:
		return errors.New("it has a negative retention")
	case r.AcquiredAt.IsZero():
		return errors.New("it does not say when the lock was acquired")
	}
	return nil
}
