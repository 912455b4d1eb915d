// Package lockstate holds the rules by which a lock changes hands, for drivers
// whose store cannot apply them itself. It is pure: the driver reads the clock,
// keeps the lock's state and sees to it that one change follows another.
package lockstate

import (
	"bytes"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Moment is one reading of a store's clocks.
type Moment struct {
	// Elapsed judges expiry: it counts from any fixed point, and nobody sets it.
	Elapsed time.Duration
	// Wall is for people and, in milliseconds, a lower bound of tokens.
	Wall time.Time
}

// Lock is the state of one lock. The zero value was never granted. It stays
// after a release, so that the token and the data survive.
type Lock struct {
	// Holder stands for the ID of the lease; empty after a release.
	Holder string `json:"holder,omitempty"`
	Owner  string `json:"owner"`
	Token  uint64 `json:"token"`
	// TTL is the longest that this holder asked for. It must not shrink when a
	// renewal asks for less: a waiter that sees a Revision unchanged for the TTL
	// may replace the lease, which the longer request still covers.
	TTL time.Duration `json:"ttlNanoseconds"`
	// Expires is a reading of Moment.Elapsed.
	Expires    time.Duration `json:"expiresNanoseconds"`
	AcquiredAt time.Time     `json:"acquiredAt"`
	RenewedAt  time.Time     `json:"renewedAt"`
	// Renewals counts those of the present holder.
	Renewals uint64 `json:"renewals"`
	Broken   bool   `json:"broken,omitempty"`
	Data     []byte `json:"data,omitempty"`
	// Writes counts those of the data by the present holder.
	Writes uint64 `json:"writes,omitempty"`
}

// Held reports whether a lease is running.
func (k *Lock) Held(now Moment) bool { return k.Holder != "" && now.Elapsed < k.Expires }

// revision marks one holder and one renewal.
func (k *Lock) revision() driver.Revision {
	return driver.NewRevision(fmt.Sprintf("%d.%d", k.Token, k.Renewals))
}

// Acquire makes one attempt; holder stands for req.ID, and from for the ID of the
// lease that counts as free, empty if none does. It reports false, and changes
// nothing, if another holds the lock.
func (k *Lock) Acquire(req driver.Request, holder, from string, now Moment) bool {
	switch {
	case !k.Held(now):
		k.grant(req, holder, now)
	case k.Holder == holder: // a repeat, whoever from is
		return k.Renew(holder, req.TTL, now)
	case k.Holder == from: // broken or not
		k.grant(req, holder, now)
	case req.Replace == k.revision(): // which is never zero
		k.grant(req, holder, now)
	default:
		return false
	}
	return true
}

// grant makes a token that outgrows the last one, and also one that was
// forgotten with a removed record, once the clock has passed it.
func (k *Lock) grant(req driver.Request, holder string, now Moment) {
	data := k.Data
	if req.Data != nil {
		data = bytes.Clone(req.Data)
	}
	*k = Lock{
		Holder:     holder,
		Owner:      req.Owner,
		Token:      max(k.Token+1, uint64(max(now.Wall.UnixMilli(), 0))),
		TTL:        req.TTL,
		Expires:    now.Elapsed + req.TTL,
		AcquiredAt: now.Wall,
		RenewedAt:  now.Wall,
		Data:       data,
	}
}

// Renew extends the lease, also one that expired and that nobody took, and
// never shortens it. It reports false if the lease is lost or broken.
func (k *Lock) Renew(holder string, ttl time.Duration, now Moment) bool {
	if !k.belongsTo(holder) || k.Broken {
		return false
	}
	k.Expires = max(k.Expires, now.Elapsed+ttl)
	k.TTL = max(k.TTL, ttl)
	k.RenewedAt = now.Wall
	k.Renewals++
	return true
}

func (k *Lock) belongsTo(holder string) bool { return k.Holder != "" && k.Holder == holder }

// Release frees the lock if it is the holder's, and reports whether it was.
func (k *Lock) Release(holder string) bool {
	if !k.belongsTo(holder) {
		return false
	}
	return k.BreakNow()
}

// Break has renewals refused, and reports whether that changed anything.
func (k *Lock) Break() bool {
	if k.Holder == "" || k.Broken {
		return false
	}
	k.Broken = true
	return true
}

// BreakNow frees the lock, and reports whether that changed anything.
func (k *Lock) BreakNow() bool {
	if k.Holder == "" {
		return false
	}
	k.Holder, k.Broken = "", false
	return true
}

// DataRevision marks the present state of the data.
func (k *Lock) DataRevision() driver.DataRevision {
	return driver.DataRevision{Token: k.Token, Writes: k.Writes}
}

// Write replaces the data. It returns ErrLost if the holder's lease is not running, and
// ErrConflict if the data have another revision.
func (k *Lock) Write(holder string, data []byte, at driver.DataRevision, now Moment) error {
	switch {
	case !k.belongsTo(holder) || !k.Held(now):
		return driver.ErrLost
	case k.DataRevision() != at:
		return driver.ErrConflict
	}
	k.Data = bytes.Clone(data)
	k.Writes++
	return nil
}

// Record tells what is known of the lock.
func (k *Lock) Record(name string, now Moment) driver.Record {
	r := driver.Record{
		Name: name, State: driver.StateFree,
		Owner: k.Owner, Token: k.Token, Data: bytes.Clone(k.Data),
		AcquiredAt: k.AcquiredAt, RenewedAt: k.RenewedAt,
	}
	if k.Held(now) {
		r.State = driver.StateHeld
		r.TTL = k.TTL
		r.Remaining, r.RemainingKnown = k.Expires-now.Elapsed, true
		r.Broken = k.Broken
		r.Revision = k.revision()
	}
	return r
}
