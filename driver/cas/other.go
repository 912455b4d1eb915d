package cas

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// Other is a holder that does not use this package, but changes what the store keeps beside the data of a value, by a
// protocol of its own. The Locker respects it like any holder. It reports a token for it, which the holder itself does not know.
type Other struct {
	// Mark stands for the holder and its last renewal: each renewal changes it. It is empty if the other program has
	// released the lock, has removed the holder, or may have had the lock since the last grant and left no trace.
	Mark string
	// Owner is for people to read.
	Owner string
	// TTL is how long the lease lasts after its last renewal. It is positive. One longer than [driver.MaxTTL] counts as that.
	TTL time.Duration
	// AcquiredAt is for people to read.
	AcquiredAt time.Time
	// RenewedAt is when the lease was renewed last, by the store's clock. If it is zero, the lease is [Value].Unsure.
	RenewedAt time.Time
	// Grants is how many grants the other program's protocol has counted, its present holder included, or 0 if it counts none.
	Grants uint64
}

// otherPrefix begins the Holder of a record that an Other holds. No digest of a lease ID has it.
const otherPrefix = "other:"

// errOther refuses a break that the holder would not notice.
var errOther = driver.Denied(errors.New("the holder is a program that does not use this driver, and would not notice: " +
	"stop that program, or free the lock at once"))

func isOther(holder string) bool { return strings.HasPrefix(holder, otherPrefix) }

// overlay puts another program's holder into a record that does not know of it, or of its last renewal.
func (r *record) overlay(o Other, step time.Duration) {
	known, before := isOther(r.Holder), r.Grants
	if !known && o.Mark != "" {
		r.Grants++
	}
	r.Grants = max(r.Grants, o.Grants)
	more := min(r.Grants-before, math.MaxInt32)
	if o.Mark == "" || !known || more > 0 {
		end := driver.EndUnknown
		if known {
			end = driver.EndReleased
		}
		r.End(end, o.RenewedAt)
		r.Removed = false
	}
	renewed := time.Duration(0)
	if !o.RenewedAt.IsZero() {
		renewed = time.Duration(o.RenewedAt.UnixNano())
	}
	if o.Mark == "" {
		r.Expires = renewed // the turns of the waiters count from here
		return
	}
	// Each holder that is counted has a token of its own, between those of the grants before and after. Where none are counted, those that
	// follow one another share one.
	if more > 0 {
		r.Token, r.Writes = r.Token+more, 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(o.Mark))
	o.TTL = min(o.TTL, driver.MaxTTL) // a record with a longer one would be refused once a waiter had stored its position
	r.Holder, r.Owner, r.TTL, r.Renewals, r.Broken = otherPrefix+o.Mark, o.Owner, o.TTL, sum.Sum64(), false
	r.AcquiredAt, r.RenewedAt = o.AcquiredAt, o.RenewedAt
	if r.AcquiredAt.IsZero() {
		r.AcquiredAt = time.UnixMilli(max(0, o.RenewedAt.UnixMilli())) // the record must have one
	}
	r.Expires = renewed + o.TTL + step
}

// withhold makes a lease count as valid whose age the store does not know. A waiter that sees no renewal of it for
// its whole TTL takes it over; see [driver.Request].Replace. A caller that comes seldom sees nothing for so long: for it, the lease
// ends when the clocks cannot differ by so much. Without any time of a renewal it does not.
func (s *state) withhold() {
	if s.Holder != "" && s.Expires <= s.now.Elapsed && (s.undated || s.now.Elapsed-s.Expires < MaxDisagreement) {
		s.lapsed, s.withheld = s.Expires, s.now.Elapsed+s.TTL
		s.Expires = s.withheld
	}
}

// Present is what a value says of the lock's holder.
type Present struct {
	// Name is that of the lock.
	Name string
	// Held says that there is a holder, whether or not its lease has ended. Other says that it is an [Other], and Shared that there are
	// readers, of whom the other fields show the latest.
	Held, Other, Shared bool
	// Owner, Token, TTL and the times are those of the last grant. Renewals rises with each renewal of it.
	Owner                 string
	Token, Renewals       uint64
	TTL                   time.Duration
	AcquiredAt, RenewedAt time.Time
	// Grants counts the grants since the key had no value, and never falls. It goes on from [Other].Grants.
	Grants uint64
}

// ReadPresent reads what a value says of the holder. It is for a store that shows the holder in fields of its own, so that
// programs with another protocol respect it. If Other is set, the store leaves those fields alone. ok is false for a value
// that is no lock's.
func ReadPresent(data []byte) (p Present, ok bool) {
	var r struct {
		Name   string `json:"name"`
		Format int    `json:"version"`
		Grants uint64 `json:"grants"`
		lockrecord.Stored
	}
	if json.Unmarshal(data, &r) != nil || r.Format != format || r.Name == "" {
		return Present{}, false
	}
	return Present{Name: r.Name, Held: r.Holder != "", Other: isOther(r.Holder), Shared: r.Holder == lockstate.Shared, Owner: r.Owner,
		Token: r.Token, Renewals: r.Renewals, TTL: r.TTL, AcquiredAt: r.AcquiredAt, RenewedAt: r.RenewedAt, Grants: r.Grants}, true
}

// bare makes the record of a value without data that an Other has made.
func bare(key, name string) (record, error) {
	if name == "" {
		var ok bool
		if name, ok = lockrecord.NameOfKey(key); !ok {
			return record{}, driver.Damaged(fmt.Errorf("the value of key %s does not say which lock it is", key))
		}
	}
	return record{Name: name}, nil
}
