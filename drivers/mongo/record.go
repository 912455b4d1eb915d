package mongo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// record is a decoded document.
type record struct {
	name       string
	version    int64
	leaseID    string // empty if the lock is free, sharedHolder if it has readers
	owner      string
	renewedAt  time.Time
	expiresAt  time.Time
	acquiredAt time.Time
	token      int64
	ttl        time.Duration
	data       []byte
	writes     int64
	broken     bool
	reserve    time.Duration
	waiters    int64
	position   int64
	turn       int64 // of a reader, counted from 1
	renewals   int64
	readers    []reader  // if the reply has them
	reader     *reader   // if the reply has one
	now        time.Time // zero if the reply does not have it
	ends       ends
	history    []bson.RawValue // the latest last
}

// badRecordError: a document is not a lock's record, or is damaged. The lock is neither held
// nor free; a person must repair or delete the document.
type badRecordError struct {
	name    string
	problem string
	inDoubt bool // the record has the lease ID of the request, which may have changed it
}

func (e *badRecordError) Error() string {
	unchanged := " and was left unchanged"
	if e.inDoubt {
		unchanged = ""
	}
	return fmt.Sprintf("the record with _id %q is damaged%s: %s; repair or delete it", e.name, unchanged, e.problem)
}

// Is makes errors.Is(err, driver.ErrDamaged) true, unless the request may have changed the record.
func (e *badRecordError) Is(target error) bool { return target == driver.ErrDamaged && !e.inDoubt }

// decodeRecord decodes a document. An error is a *badRecordError. It shows no values, since a
// misplaced one may be a secret.
func decodeRecord(raw bson.Raw) (*record, error) {
	r := &record{}
	d := decoder{}
	elements, err := elementsOf(raw)
	if err != nil {
		return nil, &badRecordError{problem: "it is not valid BSON"}
	}
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case fieldName:
			d.text(fieldName, v, &r.name)
		case fieldVersion:
			d.number(fieldVersion, v, &r.version)
		case fieldLeaseID:
			d.text(fieldLeaseID, v, &r.leaseID)
			d.check(fieldLeaseID, r.leaseID != "" || v.Type != bson.TypeString, "is empty")
		case fieldOwner:
			d.text(fieldOwner, v, &r.owner)
		case fieldRenewedAt:
			d.date(fieldRenewedAt, v, &r.renewedAt)
		case fieldExpiresAt:
			d.date(fieldExpiresAt, v, &r.expiresAt)
		case fieldAcquiredAt:
			d.date(fieldAcquiredAt, v, &r.acquiredAt)
		case fieldToken:
			if d.hasType(fieldToken, v, bson.TypeInt64) {
				r.token = v.Int64()
			}
			d.check(fieldToken, r.token >= 0 && r.token < lastToken, "is out of range")
		case fieldTTL:
			var ms int64
			d.number(fieldTTL, v, &ms)
			d.check(fieldTTL, ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond), "is out of range")
			r.ttl = time.Duration(ms) * time.Millisecond
		case fieldData:
			d.binary(fieldData, v, &r.data)
		case fieldWrites:
			d.number(fieldWrites, v, &r.writes)
			d.check(fieldWrites, r.writes >= 0, "is out of range")
		case fieldBroken:
			d.boolean(fieldBroken, v, &r.broken)
		case fieldReserve:
			var ms int64
			d.number(fieldReserve, v, &ms)
			d.check(fieldReserve, ms >= emptied && ms <= driver.MaxTurn.Milliseconds(), "is out of range")
			r.reserve = time.Duration(max(ms, 0)) * time.Millisecond
		case fieldWaiters:
			d.number(fieldWaiters, v, &r.waiters)
		case fieldPosition:
			d.number(fieldPosition, v, &r.position)
		case fieldTurn:
			d.number(fieldTurn, v, &r.turn)
		case fieldRenewals:
			d.number(fieldRenewals, v, &r.renewals)
		case fieldDamaged:
			d.check(fieldReaders, false, "contradicts the record, or has a reader that lacks a fact")
		case fieldReader:
			one := d.reader(v)
			r.reader = &one
		case fieldReaders:
			r.readers = d.readers(v)
		case fieldNow:
			d.date(fieldNow, v, &r.now)
		case fieldReleasedAt, fieldBrokenAt, fieldFreedAt:
			r.ends.read(e.Key(), v)
		case fieldHistory:
			r.history = historyOf(v)
		}
	}
	if d.problem == "" && r.version != schemaVersion && r.version != sharedVersion {
		d.problem = fmt.Sprintf("its field %s is %d, but this version of Holdfast reads only %d and %d: see docs/upgrading.md",
			fieldVersion, r.version, schemaVersion, sharedVersion)
	}
	d.checkReaders(r)
	if r.leaseID != "" {
		d.check(fieldExpiresAt, !r.expiresAt.IsZero(), "is missing although the record has a holder")
		d.check(fieldToken, r.token != 0, "is missing although the record has a holder")
	}
	if d.problem != "" {
		return nil, &badRecordError{name: r.name, problem: d.problem}
	}
	return r, nil
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

// hasLeaseID reports whether a document, which may be damaged, has a lease ID.
func hasLeaseID(raw bson.Raw, id driver.LeaseID) bool {
	elements, _ := elementsOf(raw)
	return slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		value := e.Value()
		if one, ok := value.DocumentOK(); ok && e.Key() == fieldReader {
			return hasText(one, readerID, id.Reveal())
		}
		found, _ := value.StringValueOK()
		return e.Key() == fieldLeaseID && found == id.Reveal()
	})
}

// describe returns the record as callers see it.
func (r *record) describe() driver.Record {
	out := driver.Record{
		Name: r.name, State: driver.StateFree, Owner: r.owner, Token: uint64(max(r.token, 0)),
		AcquiredAt: r.acquiredAt, RenewedAt: r.renewedAt, Data: r.data, Position: int(r.position),
	}
	if r.reserve > 0 { // otherwise all that are in the queue poll, and wait for nobody there
		// Most replies have only the reservation, which shows up to five waiters.
		out.Waiters = max(int(r.waiters), int(r.reserve/driver.TurnLength))
	}
	if r.free() {
		return out
	}
	out.State = driver.StateHeld
	out.TTL = r.ttl
	out.Broken = r.broken
	if !r.now.IsZero() {
		out.Remaining, out.RemainingKnown = r.expiresAt.Sub(r.now), true
	}
	switch {
	case r.version == sharedVersion:
		out.Revision = sharedRevision(r.token, r.renewals)
		r.describeReaders(&out)
	case !r.renewedAt.IsZero():
		out.Revision = revision(r.leaseID, r.renewedAt)
	}
	return out
}

// free reports whether the lock is certainly free.
func (r *record) free() bool {
	return r.leaseID == "" || !r.now.IsZero() && !r.expiresAt.After(r.now)
}

// refusal is the error of a request that was not granted.
func (r *record) refusal() *driver.HeldError {
	out := r.describe()
	if !r.free() {
		return &driver.HeldError{Record: out}
	}
	left := r.reserve
	switch {
	case r.position > 0:
		left = driver.Turn(int(cmp.Or(r.turn, r.position)))
	case r.waiters > 0: // also if all of them poll
		left = driver.Turn(int(r.waiters) + 1)
	}
	if !r.now.IsZero() {
		left = min(left, max(r.expiresAt.Add(left).Sub(r.now), 0))
	}
	return &driver.HeldError{Reserved: true, Record: driver.Record{
		Name: r.name, State: driver.StateHeld, Remaining: left, RemainingKnown: true, Waiters: out.Waiters, Position: out.Position,
	}}
}

// pastHolders returns the last n tenures as [driver.Record] has it.
func (r *record) pastHolders(n int) []driver.Tenure {
	var all []driver.Tenure
	switch {
	case r.version == sharedVersion: // of the others the history has every one
		all = r.expiredReaders()
	case r.free() && r.token > 0:
		all = append(all, tenure{owner: r.owner, token: r.token, acquired: r.acquiredAt, expires: r.expiresAt, ends: r.ends,
			held: r.leaseID != ""}.describe())
	}
	for _, v := range slices.Backward(r.history) {
		if t, ok := decodeTenure(v); ok {
			all = append(all, t.describe())
		}
	}
	if r.version == sharedVersion {
		slices.SortStableFunc(all, func(a, b driver.Tenure) int { return cmp.Compare(b.Token, a.Token) })
	}
	return all[:min(len(all), n)]
}

// dataRevision identifies the state of the data.
func (r *record) dataRevision() driver.DataRevision {
	return driver.DataRevision{Token: uint64(max(r.token, 0)), Writes: uint64(r.writes)}
}

// revision identifies one holder and one renewal: "<milliseconds> <lease ID>".
func revision(leaseID string, renewedAt time.Time) driver.Revision {
	return driver.NewRevision(strconv.FormatInt(renewedAt.UnixMilli(), 10) + " " + leaseID)
}

// parseRevision reverses revision. A mark of another backend never equals one of this driver.
func parseRevision(rev driver.Revision) (leaseID string, renewedAt bson.DateTime, ok bool) {
	ms, leaseID, ok := strings.Cut(rev.Mark(), " ")
	n, err := strconv.ParseInt(ms, 10, 64)
	return leaseID, bson.DateTime(n), ok && err == nil
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
