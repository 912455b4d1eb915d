package mongo

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// reader is one holder of a lock that is held shared. See readers_pipeline.go.
type reader struct {
	id, owner                  string
	token                      int64
	ttl                        time.Duration
	acquired, expires, renewed time.Time
	broken                     bool
}

// reader decodes one reader.
func (d *decoder) reader(v bson.RawValue) (r reader) {
	if !d.hasType(fieldReaders, v, bson.TypeEmbeddedDocument) {
		return r
	}
	elements, err := elementsOf(v.Document())
	d.check(fieldReaders, err == nil, "is malformed")
	ms := int64(0)
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case readerID:
			d.text(fieldReaders, v, &r.id)
		case readerOwner:
			d.text(fieldReaders, v, &r.owner)
		case readerToken:
			d.number(fieldReaders, v, &r.token)
		case readerTTL:
			d.number(fieldReaders, v, &ms)
			d.check(fieldReaders, ms <= limits.MaxTTL.Milliseconds(), "has a TTL that is out of range")
			r.ttl = time.Duration(ms) * time.Millisecond
		case readerAcquired:
			d.date(fieldReaders, v, &r.acquired)
		case readerExpires:
			d.date(fieldReaders, v, &r.expires)
		case readerRenewed:
			d.date(fieldReaders, v, &r.renewed)
		case readerBroken:
			d.boolean(fieldReaders, v, &r.broken)
		}
	}
	d.check(fieldReaders, r.id != "" && r.ttl > 0 && r.token > 0 && !r.expires.IsZero(), "lacks a fact of a reader, or has an impossible one")
	return r
}

// readers decodes all readers.
func (d *decoder) readers(v bson.RawValue) (all []reader) {
	array, ok := v.ArrayOK()
	d.check(fieldReaders, ok, "is not an array")
	elements, err := elementsOf(bson.Raw(array))
	d.check(fieldReaders, err == nil, "is malformed")
	all = []reader{}
	for _, e := range elements {
		all = append(all, d.reader(e.Value()))
	}
	return all
}

// checkReaders refuses a record whose readers are damaged. One that has too few of them could be granted to a writer while
// another reads.
func (d *decoder) checkReaders(r *record) {
	if r.version != sharedVersion {
		r.readers = nil // of a lock that has become exclusive
		return
	}
	d.check(fieldLeaseID, r.leaseID == "" || r.leaseID == sharedHolder, "is that of an exclusive holder although the lock is shared")
	if r.readers == nil || d.problem != "" {
		return // the reply does not have them
	}
	d.check(fieldReaders, (len(r.readers) > 0) == (r.leaseID != ""), "is empty although the record has readers, or the reverse")
	last, ends := int64(0), time.Time{}
	for _, one := range r.readers {
		d.check(fieldReaders, one.token > last && one.token <= r.token, "has tokens out of order")
		last, ends = one.token, later(ends, one.expires)
	}
	d.check(fieldExpiresAt, len(r.readers) == 0 || ends.Equal(r.expiresAt), "is not when the last reader's lease ends")
}

// has reports whether a lease has the lock, expired or not. The reply must be about that lease.
func (r *record) has(lease driver.Lease) bool {
	if lease.Mode == driver.Shared {
		return r.reader != nil && r.reader.id == lease.ID.Reveal()
	}
	return r.leaseID == lease.ID.Reveal() && r.version != sharedVersion
}

// refuses reports whether the renewals of a lease that has the lock are refused.
func (r *record) refuses(lease driver.Lease) bool {
	if lease.Mode == driver.Shared {
		return r.reader.broken
	}
	return r.broken
}

// granted reports whether a request has got the lock, and returns its lease.
func (r *record) granted(req driver.Request) (driver.Lease, bool) {
	lease := driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: uint64(r.token), TTL: req.TTL, Mode: req.Mode,
		Contended: r.reserve > 0}
	if req.Mode != driver.Shared {
		return lease, r.has(lease) && !r.broken
	}
	if !r.has(lease) || r.reader.broken || !r.reader.expires.After(r.now) {
		return lease, false
	}
	lease.Owner, lease.Token = r.reader.owner, uint64(r.reader.token) // a repeat has the token of its first grant
	return lease, true
}

// live reports whether the lease of a reader has not expired.
func (r *record) live(one reader) bool { return r.now.IsZero() || one.expires.After(r.now) }

// describeReaders adds the readers to a record.
func (r *record) describeReaders(out *driver.Record) {
	out.Broken = len(r.readers) > 0
	for _, one := range r.readers {
		if !r.live(one) {
			continue
		}
		h := driver.Holder{Owner: one.owner, Token: uint64(one.token), TTL: one.ttl, AcquiredAt: one.acquired, RenewedAt: one.renewed,
			Broken: one.broken}
		if !r.now.IsZero() {
			h.Remaining, h.RemainingKnown = one.expires.Sub(r.now), true
		}
		out.Broken = out.Broken && one.broken
		out.Holders = append(out.Holders, h)
	}
}

// expiredReaders are the tenures of the readers of a lock that is not held, the latest first.
func (r *record) expiredReaders() (all []driver.Tenure) {
	if !r.free() {
		return nil
	}
	for _, one := range slices.Backward(r.readers) {
		end := driver.EndExpired
		if one.broken {
			end = driver.EndBroken
		}
		all = append(all, driver.Tenure{Owner: one.owner, Token: uint64(one.token), From: one.acquired, Until: one.expires, End: end,
			Mode: driver.Shared})
	}
	return all
}

// sharedRevision identifies one grant or renewal among readers: "<renewals> shared.<token>".
func sharedRevision(token, renewals int64) driver.Revision {
	return driver.NewRevision(strconv.FormatInt(renewals, 10) + " " + sharedHolder + "." + strconv.FormatInt(token, 10))
}

// replacedBy is what a request that replaces a holder compares: the lease ID and the time of the last renewal or, of
// readers, the token of the last grant and the number of renewals. A request that does not know readers replaces none.
func replacedBy(rev driver.Revision, readers bool) (list, bool) {
	renewals, token, shared := strings.Cut(rev.Mark(), " "+sharedHolder+".")
	if shared {
		n, errN := strconv.ParseInt(renewals, 10, 64)
		t, errT := strconv.ParseInt(token, 10, 64)
		if errN == nil && errT == nil {
			return list{sharedHolder, t, n}, readers
		}
	}
	leaseID, renewedAt, ok := parseRevision(rev)
	return list{leaseID, renewedAt}, ok
}

// wokenReaders are the hints for the waiters that a change wakes, by the whole queue.
func wokenReaders(name string, document bson.Raw, queue []bson.RawValue) (all []hint) {
	now := dateOrZero(document.Lookup(fieldNow))
	k := lockstate.Lock{}
	if held := heldByReaders(document, now); held {
		k.Holder, k.Expires, k.Readers = lockstate.Shared, elapsedAt(now)+1, []lockstate.Reader{{Expires: elapsedAt(now) + 1}}
		if full, _ := document.Lookup(fieldFull).BooleanOK(); full {
			return nil
		}
	}
	for _, v := range queue {
		waiter, _ := v.DocumentOK()
		id, _ := waiter.Lookup(fieldWaiter).StringValueOK()
		polls, _ := waiter.Lookup(fieldPolls).BooleanOK()
		shared, _ := waiter.Lookup(fieldShared).BooleanOK()
		k.Queue = append(k.Queue, lockstate.Waiter{ID: id, Until: elapsedAt(dateOrZero(waiter.Lookup(fieldUntil))), Polls: polls, Shared: shared})
	}
	for _, w := range k.Woken(lockstate.Moment{Elapsed: elapsedAt(now)}) {
		turn := 1 // a lock that readers hold is free for those that join them
		if k.Holder == "" {
			turn = 1 + int(k.Turn(w.ID)/driver.TurnLength)
		}
		all = append(all, hint{name, w.ID, turn})
	}
	return all
}

// heldByReaders reports whether a reply shows a lock that readers hold.
func heldByReaders(document bson.Raw, now time.Time) bool {
	version, _ := document.Lookup(fieldVersion).AsInt64OK()
	_, held := document.Lookup(fieldLeaseID).StringValueOK()
	return version == sharedVersion && held && dateOrZero(document.Lookup(fieldExpiresAt)).After(now)
}

// elapsedAt is a time of the server's clock as lockstate has it.
func elapsedAt(at time.Time) time.Duration { return time.Duration(at.UnixNano()) }
