package cas

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// format is the version of the record's format. A record of another version is refused.
const format = 1

// record is the value of a lock. The holder is the digest of a lease's ID.
type record struct {
	Format int    `json:"version"`
	Name   string `json:"name"`
	// Unique is another text in each value, so that no two values are equal: the version of some stores is a hash. It begins
	// with the lineage, which stays until the value is deleted.
	Unique string `json:"unique"`
	// Expiry is how leases are judged. The times of the two ways cannot be compared.
	Expiry string `json:"expiry"`
	// Used is when the record was written, by the store's clock.
	Used time.Duration `json:"usedNanoseconds,omitempty"`
	// Grants counts the grants since the key had no value, those by other programs included.
	Grants uint64 `json:"grants,omitempty"`
	// Removed says that the record counts as missing. It is kept, because the tokens of its name must rise.
	Removed bool `json:"removed,omitempty"`
	lockrecord.Stored
}

// encode returns the value to store. It changes Unique.
func (r *record) encode() ([]byte, error) {
	line := lineage(r.Unique)
	if line == "" {
		line = rand.Text()[:8]
	}
	r.Format, r.Unique, r.Past = format, line+"-"+rand.Text(), r.HistoryText()
	return json.Marshal(r)
}

// lineage is what all values of a key have in common since it had none.
func lineage(unique string) string {
	line, _, _ := strings.Cut(unique, "-")
	return line
}

// decode reads the value of a key. name is the lock's, or empty for any lock with this key. Everything
// that is not a whole and consistent record is an error that matches [driver.ErrDamaged].
func decode(key, name string, data []byte, expiry driver.Expiry) (record, error) {
	var rec record
	err := lockrecord.Decode(data, &rec, &rec.Format, format)
	if err == nil {
		err = rec.check(key, expiry)
	}
	if err == nil && name != "" && rec.Name != name {
		err = fmt.Errorf("it is the record of lock %s", driver.Quote(rec.Name))
	}
	if err != nil {
		return record{}, driver.Damaged(fmt.Errorf("the value of key %s is damaged or was not written by this program (%w): "+
			"restore it, or delete it when nobody holds the lock", key, err))
	}
	rec.ReadHistory()
	return rec, nil
}

// check refuses a record that lacks a fact or has an impossible one.
func (r *record) check(key string, expiry driver.Expiry) error {
	switch {
	case lockrecord.Key(r.Name) != key:
		return fmt.Errorf("it is the record of lock %s, which has another key", driver.Quote(r.Name))
	case r.Expiry != expiry.String():
		return fmt.Errorf("its leases are judged %q, and this program judges %s", driver.Quote(r.Expiry), expiry)
	case r.Used < 0:
		return errors.New("it was written at a negative time")
	case len(r.Queue) > 0 && expiry != driver.ByServer:
		return errors.New("it has a queue, which needs a clock")
	case r.TTL < 0 || r.TTL > driver.MaxTTL:
		return errors.New("its TTL is out of range")
	case r.Removed && (r.Holder != "" || len(r.Data) > 0):
		return errors.New("it is removed and in use")
	}
	return r.Check()
}

// remove makes the record count as missing.
func (r *record) remove() {
	r.Stored = lockrecord.Stored{Lock: lockstate.Lock{Token: r.Token, AcquiredAt: r.AcquiredAt}}
	r.Removed = true
}
