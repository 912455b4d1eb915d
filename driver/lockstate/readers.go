package lockstate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Shared is the Holder of a lock that has readers. So a program that does not know of readers takes the lock for
// that of somebody else.
const Shared = "shared"

// Reader is one holder of a lock that is held [driver.Shared]. Its lease ends by itself, whatever becomes of the
// others. A reader whose lease has expired stays until the next grant, or until the last of the others has ended, and can renew the lease
// until then.
type Reader struct {
	Holder string `json:"holder"` // as [Lock].Holder
	Owner  string `json:"owner"`
	Token  uint64 `json:"token"`
	// TTL, Expires and Broken are as in [Lock].
	TTL     time.Duration `json:"ttl"`
	Expires time.Duration `json:"expires"`
	Broken  bool          `json:"broken,omitempty"`
	// Acquired and Renewed are in milliseconds since 1970, for people to read.
	Acquired int64 `json:"acquired"`
	Renewed  int64 `json:"renewed"`
}

// reader returns the place of a holder among the readers, or -1.
func (k *Lock) reader(holder string) int {
	return slices.IndexFunc(k.Readers, func(r Reader) bool { return r.Holder == holder })
}

// reads reports whether a holder has the lock as a reader, and its lease has not expired.
func (k *Lock) reads(holder string, now Moment) bool {
	i := k.reader(holder)
	return i >= 0 && now.Elapsed < k.Readers[i].Expires
}

// Has reports whether a holder has the lock, in whichever mode, and whether or not its lease has expired.
func (k *Lock) Has(holder string) bool { return k.belongsTo(holder) || k.reader(holder) >= 0 }

// Lease is that of a request which was granted just now. holder stands for its ID.
func (k *Lock) Lease(req driver.Request, holder string) driver.Lease {
	l := driver.Lease{Name: req.Name, ID: req.ID, Owner: k.Owner, Token: k.Token, TTL: req.TTL, Mode: req.Mode, Contended: len(k.Queue) > 0}
	if i := k.reader(holder); i >= 0 { // a repeat has the token of its first grant
		l.Owner, l.Token = k.Readers[i].Owner, k.Readers[i].Token
	}
	return l
}

// RaiseToken makes the token of the latest grant, which nobody knows yet, at least this one.
func (k *Lock) RaiseToken(token uint64) {
	k.Token = max(k.Token, token)
	if n := len(k.Readers); n > 0 {
		k.Readers[n-1].Token = k.Token
	}
}

// takesReader reports whether a lock that is held takes the reader of a request, too.
func (k *Lock) takesReader(req driver.Request, now Moment) bool {
	return req.Mode == driver.Shared && len(k.Readers) > 0 && k.Held(now) && !k.full(now)
}

// full reports whether the lock has as many readers as it can have.
func (k *Lock) full(now Moment) bool {
	live := 0
	for _, r := range k.Readers {
		if now.Elapsed < r.Expires {
			live++
		}
	}
	return live >= driver.MaxHolders
}

// CheckReaders refuses a stored lock whose readers are damaged. One that has too few of them could be granted to a writer
// while another reads.
func (k *Lock) CheckReaders() error {
	switch shared := k.Holder == Shared; {
	case shared && len(k.Readers) == 0:
		return errors.New("it is shared by nobody")
	case !shared && len(k.Readers) > 0:
		return errors.New("it has readers and is not shared")
	}
	last, ends := uint64(0), time.Duration(math.MinInt64)
	for i, r := range k.Readers {
		if r.Holder == "" || r.TTL <= 0 || r.Token <= last || r.Token > k.Token {
			return fmt.Errorf("its reader %d lacks a fact, or has an impossible one", i+1)
		}
		last, ends = r.Token, max(ends, r.Expires)
	}
	if len(k.Readers) > 0 && ends != k.Expires {
		return errors.New("its lease does not end with that of its last reader")
	}
	return nil
}

// addReader makes the lock, which was just granted to a holder, a shared one. others are its readers before.
func (k *Lock) addReader(others []Reader, holder string) {
	at := k.AcquiredAt.UnixMilli()
	r := Reader{Holder: holder, Owner: k.Owner, Token: k.Token, TTL: k.TTL, Expires: k.Expires, Acquired: at, Renewed: at}
	k.Readers = append(slices.Clip(others), r)
	k.sum()
}

// sum sets what depends on all readers. After the last one has ended, the lock is free.
func (k *Lock) sum() {
	if len(k.Readers) == 0 {
		k.Holder, k.Readers = "", nil
		return
	}
	k.Holder, k.TTL, k.Expires = Shared, 0, k.Readers[0].Expires
	for _, r := range k.Readers {
		k.TTL, k.Expires = max(k.TTL, r.TTL), max(k.Expires, r.Expires)
	}
}

// renewReader is Renew for a reader.
func (k *Lock) renewReader(i int, ttl time.Duration, now Moment) bool {
	r := k.Readers[i]
	if r.Broken {
		return false
	}
	r.Expires, r.TTL, r.Renewed = max(r.Expires, now.Elapsed+ttl), max(r.TTL, ttl), now.Wall.UnixMilli()
	k.setReader(i, r)
	k.countRenewal(now) // so the revision changes, and a waiter sees that the lock is not stuck
	if r.Token == k.Token {
		k.RenewedAt = now.Wall
	}
	return true
}

// setReader changes a reader. It leaves the slice alone, of which a driver may have kept a copy.
func (k *Lock) setReader(i int, r Reader) {
	k.Readers = slices.Clone(k.Readers)
	k.Readers[i] = r
	k.sum()
}

// Extend makes the lease of a holder end no earlier than at a moment, and returns when it ends.
func (k *Lock) Extend(holder string, until time.Duration) (ends time.Duration) {
	if i := k.reader(holder); i >= 0 {
		r := k.Readers[i]
		r.Expires = max(r.Expires, until)
		k.setReader(i, r)
		return r.Expires
	}
	k.Expires = max(k.Expires, until)
	return k.Expires
}

// endReader removes a reader, and adds its tenure to the history.
func (k *Lock) endReader(i int, end driver.End, until time.Time) {
	r := k.Readers[i]
	if r.Broken && end != driver.EndFreed {
		end = driver.EndBroken
	}
	t := driver.Tenure{Owner: r.Owner, Token: r.Token, From: time.UnixMilli(r.Acquired), Until: until, End: end, Mode: driver.Shared}
	// The last tenure is that of the latest grant, if that has ended; see lastTenureKnown.
	at := len(k.History)
	for at > 0 && k.History[at-1].Token > r.Token {
		at--
	}
	k.History = slices.Insert(k.History, at, t)
	k.KeepHistory(driver.MaxHistory)
	k.Readers = slices.Delete(slices.Clone(k.Readers), i, i+1)
	k.sum()
}

// endedReader must be called after a reader has ended. The lock is free from now on if no other has a valid lease: those whose leases have
// expired end, too, since the turns of the waiters would count from their expiry.
func (k *Lock) endedReader(now Moment) {
	if !k.Held(now) {
		k.dropExpired(now)
	}
}

// dropExpired removes the readers whose leases have expired, and returns the others.
func (k *Lock) dropExpired(now Moment) []Reader {
	for i := len(k.Readers) - 1; i >= 0; i-- {
		if r := k.Readers[i]; r.Expires <= now.Elapsed {
			k.endReader(i, driver.EndExpired, now.Wall.Add(r.Expires-now.Elapsed))
		}
	}
	return k.Readers
}

// Targets returns the tokens of the holders that a break affects: of one that it names, or of all.
func (k *Lock) Targets(target driver.BreakTarget) []uint64 {
	if token, only := target.Token(); only || len(k.Readers) == 0 {
		if !only {
			token = k.Token
		}
		return []uint64{token}
	}
	var all []uint64
	for _, r := range k.Readers {
		all = append(all, r.Token)
	}
	return all
}

// CheckTarget is that of [Lock.Record]. A reader whose lease has expired is affected, too: it could still renew.
func (k *Lock) CheckTarget(name string, target driver.BreakTarget, now Moment) (affects bool, err error) {
	token, only := target.Token()
	if only && slices.ContainsFunc(k.Readers, func(r Reader) bool { return r.Token == token }) {
		return true, nil
	}
	return k.Record(name, now).CheckTarget(target)
}

// breakReaders is Break for readers.
func (k *Lock) breakReaders(only []uint64) (changed bool) {
	readers := slices.Clone(k.Readers)
	for i, r := range readers {
		if !r.Broken && isOneOf(only, r.Token) {
			readers[i].Broken, changed = true, true
		}
	}
	k.Readers = readers
	return changed
}

// isOneOf reports whether a break affects the holder with a token: no tokens are those of all.
func isOneOf(only []uint64, token uint64) bool { return len(only) == 0 || slices.Contains(only, token) }

// freeReaders is BreakNow for readers.
func (k *Lock) freeReaders(now Moment, only []uint64) (changed bool) {
	for i := len(k.Readers) - 1; i >= 0; i-- {
		if isOneOf(only, k.Readers[i].Token) {
			k.endReader(i, driver.EndFreed, now.Wall)
			changed = true
		}
	}
	if changed {
		k.endedReader(now)
	}
	return changed
}

// describeReaders adds the readers to a record.
func (k *Lock) describeReaders(r *driver.Record, now Moment) {
	r.Broken = r.Broken || len(k.Readers) > 0
	for _, one := range k.Readers {
		if now.Elapsed >= one.Expires {
			continue
		}
		r.Broken = r.Broken && one.Broken
		r.Holders = append(r.Holders, driver.Holder{Owner: one.Owner, Token: one.Token, TTL: one.TTL, Remaining: one.Expires - now.Elapsed,
			RemainingKnown: true, AcquiredAt: time.UnixMilli(one.Acquired), RenewedAt: time.UnixMilli(one.Renewed), Broken: one.Broken})
	}
}
