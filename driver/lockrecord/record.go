// Package lockrecord has the form in which drivers keep a [lockstate.Lock] as text, and the names under which
// they keep it. It is for drivers of stores that keep bytes, such as files. It does no I/O.
//
// A driver's record is a struct that embeds [Stored] and adds fields of its own, such as the version of the
// format and the name of the lock. It is written as JSON, so a person can read it. [Decode] and [Stored.Check]
// refuse what is damaged: a record that cannot be read must never count as free.
package lockrecord

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// LastToken cannot be exceeded, since tokens have 63 bits, so a record that has it is damaged.
const LastToken = math.MaxInt64

// Stored is a lock and its past holders.
type Stored struct {
	lockstate.Lock // its History begins with the last past holder
	// Past are the past holders in the form that is stored. A driver sets it to HistoryText before it writes the
	// record, and calls ReadHistory after it has read one.
	Past string `json:"past,omitempty"`
	// earlier are the past holders before that, as text: few calls need them.
	earlier string
}

// Digest is what stands for a lease ID in a record, so that a reader of the record cannot act for the holder.
func Digest(id driver.LeaseID) string {
	sum := sha256.Sum256([]byte(id.Reveal()))
	return hex.EncodeToString(sum[:])
}

// Decode reads a record from JSON into rec, a pointer. It returns an error for everything but one whole record
// of the version that is wanted: for an unknown field, too, and for what follows the record. version points to
// the version in rec.
func Decode(content []byte, rec any, version *int, want int) error {
	if len(bytes.TrimSpace(content)) == 0 {
		return errors.New("it is empty")
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(rec); err != nil {
		var peek struct { // a record of another version may have other fields
			Version int `json:"version"`
		}
		if json.Unmarshal(content, &peek) == nil && peek.Version != want {
			return errVersion(peek.Version, want)
		}
		return brief(err)
	}
	if *version != want {
		return errVersion(*version, want)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the record")
	}
	return nil
}

// maxText is how much of an error of package json is shown. It quotes what the record has, such as the name of a field, which may be
// the whole record.
const maxText = 200

// brief shortens the text of an error that is too long for a log.
func brief(err error) error {
	text := err.Error()
	if len(text) <= maxText {
		return err
	}
	return fmt.Errorf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), len(text))
}

func errVersion(version, want int) error {
	return fmt.Errorf("it has version %d, and this program knows only %d: see docs/upgrading.md", version, want)
}

// Check refuses a lock that was granted and lacks a fact, or has an impossible one.
func (s *Stored) Check() error {
	switch {
	case s.Token == 0:
		return errors.New("it has no token")
	case s.Token >= LastToken: // Promise 3: the next token would not be greater, or could not be read
		return errors.New("it has a token that is out of range")
	case s.Holder != "" && s.TTL <= 0:
		return errors.New("it has a holder, but no TTL")
	case s.AcquiredAt.IsZero():
		return errors.New("it does not say when the lock was acquired")
	}
	return s.CheckReaders()
}

// HistoryText returns the past holders as text, the latest last. See [driver.FormatHistory].
func (s *Stored) HistoryText() string {
	text := driver.FormatHistory(s.History)
	if s.earlier != "" && text != "" {
		return s.earlier + "," + text
	}
	return s.earlier + text
}

// ReadHistory sets the past holders from Past, and empties it. Of these it reads the last one, without which the
// lock does not know whether the history has the tenure that it ends. A damaged one is dropped with all before it.
// [Stored.Tenures] has all of them.
func (s *Stored) ReadHistory() {
	at := strings.LastIndexByte(s.Past, ',')
	if s.History = driver.ParseHistory(s.Past[at+1:]); len(s.History) > 0 {
		s.earlier = s.Past[:max(at, 0)]
	}
	s.Past = ""
}

// Tenures returns all past holders, the latest last. Readers end in any order, and the stored text has them almost in
// that order: only its last one is in place.
func (s *Stored) Tenures() []driver.Tenure {
	all := append(driver.ParseHistory(s.earlier), s.History...)
	slices.SortStableFunc(all, func(a, b driver.Tenure) int { return cmp.Compare(a.Token, b.Token) })
	return all
}

// KeepTenures keeps the last n past holders.
func (s *Stored) KeepTenures(n int) {
	s.KeepHistory(n)
	rest := n - len(s.History)
	for end := len(s.earlier); end > 0; rest-- {
		if rest <= 0 {
			s.earlier = strings.TrimPrefix(s.earlier[end:], ",")
			return
		}
		end = max(strings.LastIndexByte(s.earlier[:end], ','), 0)
	}
}
