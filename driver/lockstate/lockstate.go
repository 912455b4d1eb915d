// Package lockstate has the rules by which a lock changes hands. It is for drivers of
// stores that cannot apply the rules themselves. It does no I/O and reads no clock: the
// driver reads the store's clock, stores the [Lock], and makes one change at a time.
package lockstate

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Moment is one reading of a store's clocks.
type Moment struct {
	// Elapsed judges expiry. It counts from any fixed point, and nobody can set it.
	Elapsed time.Duration
	// Wall is for people to read. In milliseconds since 1970 it is a lower bound of tokens.
	Wall time.Time
}

// Lock is the state of one lock. The zero value is a lock that was never granted. The
// state is kept after a release, so that the token and the data survive.
type Lock struct {
	// Holder stands for the ID of the lease: the ID itself or its digest. It is empty after
	// a release, and [Shared] if the lock has Readers.
	Holder string `json:"holder,omitempty"`
	Owner  string `json:"owner"`
	Token  uint64 `json:"token"`
	// TTL is the longest TTL that this holder asked for. A renewal that asks for less must
	// not lower it: a waiter may replace a lease whose Revision stays unchanged for the TTL,
	// and the longer request still covers the lease.
	TTL time.Duration `json:"ttlNanoseconds"`
	// Expires is the reading of Moment.Elapsed at which the lease ends.
	Expires    time.Duration `json:"expiresNanoseconds"`
	AcquiredAt time.Time     `json:"acquiredAt"`
	RenewedAt  time.Time     `json:"renewedAt"`
	// Renewals rises with each renewal by the present holder. With the token it tells all grants and renewals apart, see countRenewal.
	Renewals uint64 `json:"renewals"`
	Broken   bool   `json:"broken,omitempty"`
	Data     []byte `json:"data,omitempty"`
	// Writes counts the writes of the data by the present holder.
	Writes uint64 `json:"writes,omitempty"`
	// Readers are the holders of a shared lock, in the order of their tokens. The other fields then describe the
	// latest grant, but TTL is the longest of the readers', and Expires is when the last of their leases ends.
	Readers []Reader `json:"readers,omitempty"`
	// Queue has the waiters, in order of arrival, if the store has a [driver.Queue].
	Queue []Waiter `json:"queue,omitempty"`
	// Emptied is true if the holder was the last waiter that a release wakes. A waiter that polls enters the queue
	// then: two others that hand the lock to each other empty it each time. Only MongoDB has waiters that poll, and
	// it stores this in a form of its own.
	Emptied bool `json:"-"`
	// History has the past holders, the latest last. Changes are made in place. A driver bounds it
	// with KeepHistory, and stores it in a form of its own.
	History []driver.Tenure `json:"-"`
}

// Held reports whether there is a holder whose lease has not expired.
func (k *Lock) Held(now Moment) bool {
	// Promise 8: elapsed time judges expiry, the wall clock never does.
	return k.Holder != "" && now.Elapsed < k.Expires
}

// revision stands for one holder and one renewal. It is never zero.
func (k *Lock) revision() driver.Revision {
	text := strconv.AppendUint(make([]byte, 0, 40), k.Token, 10)
	return driver.NewRevision(string(strconv.AppendUint(append(text, '.'), k.Renewals, 10)))
}

// countRenewal gives a renewal its number. A store may forget renewals that others have seen, in a fail-over. Numbers that only count
// would come again, and a living holder would pass for one that is stuck. So it is the time or, while the clock is behind, a random one.
func (k *Lock) countRenewal(now Moment) {
	if at := uint64(max(now.Wall.UnixMilli(), 0)); at > k.Renewals {
		k.Renewals = at
	} else {
		k.Renewals += 1 + rand.Uint64N(1<<16)
	}
}

// Acquire makes one attempt. It reports false, and changes nothing, if another holds the
// lock. holder stands for req.ID.
func (k *Lock) Acquire(req driver.Request, holder string, now Moment) bool {
	return k.acquire(req, holder, !k.Held(now) || k.takesReader(req, now), now)
}

// acquire is Acquire for a lock that is free for the caller, or is not. A lock that is reserved for others is not,
// although nobody holds it: its last lease may have expired without a successor.
func (k *Lock) acquire(req driver.Request, holder string, free bool, now Moment) bool {
	end := driver.EndUnknown
	switch shared := req.Mode == driver.Shared; {
	case shared && k.reads(holder, now), !free && !shared && k.belongsTo(holder):
		// Promise 5: a repeat gets the same token, so a request can be sent again after its
		// answer was lost.
		return k.Renew(holder, req.TTL, now)
	case free:
	case k.Holder != "" && !req.Replace.IsZero() && req.Replace == k.revision():
		// Promise 10: a waiter that saw this holder and this renewal for a whole TTL takes
		// over although, after a step back of the clock, the lease has not expired.
		end = driver.EndTakenOver
	default:
		return false // Promise 1: an unexpired lease of another is never granted away.
	}
	var others []Reader
	switch {
	case !k.Held(now):
		k.closeTenure(now)
	case end == driver.EndUnknown: // shared, and granted to one more
		others = k.dropExpired(now)
	default:
		k.endTenure(end, now.Wall)
	}
	k.grant(req, holder, now)
	if req.Mode == driver.Shared {
		k.addReader(others, holder)
	}
	return true
}

// grant gives the lock to a new holder.
func (k *Lock) grant(req driver.Request, holder string, now Moment) {
	data := k.Data
	if req.Data != nil {
		data = bytes.Clone(req.Data)
	}
	*k = Lock{
		Holder: holder,
		Owner:  req.Owner,
		// Promise 3: the token is greater than the last one. It is also greater than a token
		// that was forgotten with a removed record, once the clock has passed that.
		Token:      max(k.Token+1, uint64(max(now.Wall.UnixMilli(), 0))),
		TTL:        req.TTL,
		Expires:    now.Elapsed + req.TTL,
		AcquiredAt: now.Wall,
		RenewedAt:  now.Wall,
		Renewals:   uint64(max(now.Wall.UnixMilli(), 0)), // the token may be that of a grant that a fail-over has forgotten
		Data:       data,
		Queue:      k.Queue,
		History:    k.History,
	}
}

// Renew extends the lease and never shortens it. It also renews a lease that has expired if
// nobody took the lock. It reports false if the lease is lost or broken.
func (k *Lock) Renew(holder string, ttl time.Duration, now Moment) bool {
	if i := k.reader(holder); i >= 0 {
		return k.renewReader(i, ttl, now)
	}
	if !k.belongsTo(holder) || k.Broken {
		return false
	}
	// Promise 2: the end of a lease never moves back, so it always comes after the local
	// deadline of its holder.
	k.Expires = max(k.Expires, now.Elapsed+ttl)
	k.TTL = max(k.TTL, ttl)
	k.RenewedAt = now.Wall
	k.countRenewal(now)
	return true
}

// belongsTo reports whether the lock is this holder's alone.
func (k *Lock) belongsTo(holder string) bool {
	return k.Holder != "" && k.Holder == holder && len(k.Readers) == 0
}

// Release frees the lock if it is the holder's, and reports whether it was.
func (k *Lock) Release(holder string, now Moment) bool {
	if i := k.reader(holder); i >= 0 {
		k.endReader(i, driver.EndReleased, now.Wall)
		k.endedReader(now)
		return true
	}
	if !k.belongsTo(holder) {
		return false // Promise 6: a late release leaves the next holder's lease alone.
	}
	k.End(driver.EndReleased, now.Wall)
	return true
}

// End frees the lock. A store calls it for a holder of which it knows that it has ended without a
// release.
func (k *Lock) End(end driver.End, until time.Time) {
	if k.Holder != "" {
		k.endTenure(end, until)
	}
	k.Holder, k.Broken, k.Readers = "", false, nil
}

// Break makes Renew refuse the holder, or each of several readers, and reports whether that changed anything. With tokens
// it affects only the holders that have them; see [Lock.Targets].
func (k *Lock) Break(only ...uint64) bool {
	if len(k.Readers) > 0 {
		return k.breakReaders(only)
	}
	if k.Holder == "" || k.Broken || !isOneOf(only, k.Token) {
		return false
	}
	k.Broken = true
	return true
}

// BreakNow frees the lock, and reports whether that changed anything. With tokens it ends only the holders that have
// them; other readers keep the lock.
func (k *Lock) BreakNow(now Moment, only ...uint64) bool {
	if len(k.Readers) > 0 {
		return k.freeReaders(now, only)
	}
	if k.Holder == "" || !isOneOf(only, k.Token) {
		return false
	}
	k.End(driver.EndFreed, now.Wall)
	return true
}

// DataRevision stands for the present state of the data.
func (k *Lock) DataRevision() driver.DataRevision {
	return driver.DataRevision{Token: k.Token, Writes: k.Writes}
}

// Write replaces the data. It returns ErrLost if the holder does not hold the lock or its
// lease has expired, and ErrConflict if the data have another revision.
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

// Record returns what is known of the lock, without its history.
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
		k.describeReaders(&r, now)
	}
	return r
}
