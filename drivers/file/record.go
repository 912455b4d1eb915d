package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// version of the record's format. A record of another version is refused.
const version = 1

// lastToken cannot be exceeded, since tokens have 63 bits, so a record that has it is damaged.
const lastToken = math.MaxInt64

// maxRecord is the largest record file, in bytes. No record is larger: base64 makes data a
// third longer, and JSON makes names and owners at most six times as long.
const maxRecord = 1 << 20

// record is the content of NAME.json. The holder is the digest of a lease's ID, so that a
// reader of the file cannot act for the holder.
type record struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Machine string `json:"machine"`
	Boot    string `json:"boot"`
	// Used is when the record was written, by the clock of its boot. Retention is that of the
	// process that was last granted the lock. Records of earlier versions of the driver lack
	// both.
	Used           time.Duration `json:"usedNanoseconds,omitempty"`
	Retention      time.Duration `json:"retentionNanoseconds,omitempty"`
	lockstate.Lock               // its History begins with the last past holder
	// earlier are the past holders before that, as text: few calls need them.
	earlier string
}

// digest returns what stands for a lease ID in records.
func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// historyMark begins the entry of the queue that has the past holders. Earlier versions of the driver
// read and keep the field queue, which they do not use, and refuse a record that has another field.
const historyMark = "history "

func (r record) encode() ([]byte, error) {
	if text := joinTenures(r.earlier, driver.FormatHistory(r.History)); text != "" {
		r.Queue = append(slices.Clip(r.Queue), lockstate.Waiter{ID: historyMark + text})
	}
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
	return fmt.Errorf("the record %s is damaged or was not written by this program (%w): "+
		"restore it, or delete it when nobody holds the lock", path, err)
}

// decode returns an error for everything that is not a complete and consistent record.
func decode(content []byte) (record, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return record{}, errors.New("it is empty")
	}
	var rec record
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		var peek struct { // a record of another version may have other fields
			Version int `json:"version"`
		}
		if json.Unmarshal(content, &peek) == nil && peek.Version != version {
			err = errVersion(peek.Version)
		}
		return record{}, err
	}
	if rec.Version != version {
		return record{}, errVersion(rec.Version)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("there is more after the record")
	}
	rec.Queue = slices.DeleteFunc(rec.Queue, func(w lockstate.Waiter) bool {
		text, ok := strings.CutPrefix(w.ID, historyMark)
		if ok {
			rec.setHistory(text)
		}
		return ok
	})
	return rec, rec.check()
}

func errVersion(v int) error {
	return fmt.Errorf("it has version %d, and this program knows only %d", v, version)
}

// check refuses a record that lacks a fact or has an impossible one.
func (r record) check() error {
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case r.Boot == "" || r.Machine == "":
		return errors.New("it does not say on which machine and boot it was written")
	case r.Token == 0:
		return errors.New("it has no token")
	case r.Token >= lastToken: // Promise 3: the next token would not be greater, or could not be read
		return errors.New("it has a token that is out of range")
	case r.Holder != "" && r.TTL <= 0:
		return errors.New("it has a holder, but no TTL")
	case r.Retention < 0:
		return errors.New("it has a negative retention")
	case r.AcquiredAt.IsZero():
		return errors.New("it does not say when the lock was acquired")
	}
	return nil
}

// setHistory reads the last past holder, without which the lock does not know whether the history has
// the tenure that it ends. A damaged one is dropped with all before it.
func (r *record) setHistory(text string) {
	at := strings.LastIndexByte(text, ',')
	if r.History = driver.ParseHistory(text[at+1:]); len(r.History) > 0 {
		r.earlier = text[:max(at, 0)]
	}
}

// history returns all past holders, the latest last.
func (r *record) history() []driver.Tenure {
	return append(driver.ParseHistory(r.earlier), r.History...)
}

// keepHistory keeps the last n past holders.
func (r *record) keepHistory(n int) {
	r.KeepHistory(n)
	rest := n - len(r.History)
	for end := len(r.earlier); end > 0; rest-- {
		if rest <= 0 {
			r.earlier = strings.TrimPrefix(r.earlier[end:], ",")
			return
		}
		end = max(strings.LastIndexByte(r.earlier[:end], ','), 0)
	}
}

// joinTenures joins two texts of [driver.FormatHistory].
func joinTenures(a, b string) string {
	if a != "" && b != "" {
		a += ","
	}
	return a + b
}
