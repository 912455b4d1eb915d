package mongo

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// update runs an update of the driver's, and returns whether it matched, and the server's clock.
func (d *differential) update(filter, change any) (matched bool, r *record, now time.Time) {
	raw, err := d.coll.FindOneAndUpdate(bounded(d.T), filter, change,
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(withoutData)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, r, err := readRecord(bounded(d.T), d.coll, d.name, withWoken)
		if err != nil || r == nil {
			return false, nil, time.Now()
		}
		return false, r, r.now
	}
	if err == nil {
		r, err = decodeRecord(raw)
	}
	if err != nil {
		d.Fatal(err)
	}
	return true, r, r.now
}

// lease is one with the ID of the holder or another, in any mode.
func (d *differential) lease() driver.Lease {
	id, mode := d.oneOf(d.model.Holder, d.model.Holder, "a", "b"), driver.Exclusive
	if n := len(d.model.Readers); n > 0 && d.rand.IntN(5) > 0 {
		id, mode = d.model.Readers[d.rand.IntN(n)].Holder, driver.Shared
	}
	if d.rand.IntN(10) == 0 {
		mode = driver.Shared - mode
	}
	return driver.Lease{Name: d.name, ID: driver.NewLeaseID(id), TTL: d.milliseconds(500, 3000, 30_000), Mode: mode}
}

// has reports whether a lease has the lock in its mode. The rest of lockstate goes by the ID alone.
func (d *differential) has(l driver.Lease) bool {
	return d.model.Has(l.ID.Reveal()) && (len(d.model.Readers) > 0) == (l.Mode == driver.Shared)
}

// named is a verb for a lease.
func named(verb string, l driver.Lease) string {
	if l.Mode == driver.Shared {
		return "reader's " + verb
	}
	return verb
}

func (d *differential) renew() {
	lease := d.lease()
	filter, change := renewal(lease)
	got, _, now := d.update(filter, change)
	want := d.has(lease) && d.model.Renew(lease.ID.Reveal(), lease.TTL, momentOf(now))
	d.outcome(named("renew", lease), lease.ID.Reveal(), got, want)
}

func (d *differential) outcome(verb, id string, got, want any) {
	d.count(verb, got)
	d.note("%s by %q: %v", verb, id, got)
	if got != want {
		d.Errorf("%s: %v, want %v", verb, got, want)
	}
}

// ended is the time of a release by operators: the document has it. That of a reader is the time of the command.
func (d *differential) ended(matched bool, r *record, now time.Time) lockstate.Moment {
	if matched && r.version != sharedVersion {
		now = r.expiresAt
	}
	return momentOf(now)
}

func (d *differential) release() {
	lease := d.lease()
	got, r, now := d.update(heldBy(lease), d.l.releaseOf(lease))
	m := d.ended(got, r, now)
	want := d.has(lease) && d.model.Release(lease.ID.Reveal(), m)
	if want && d.model.Holder == "" {
		d.model.Expires = m.Elapsed
	}
	d.outcome(named("release", lease), lease.ID.Reveal(), got, want)
}

func (d *differential) breakHolder() {
	if len(d.model.Readers) > 0 {
		d.breakReaders()
		return
	}
	lease := driver.Lease{Name: d.name, ID: driver.NewLeaseID(d.model.Holder)}
	if d.rand.IntN(2) == 0 {
		got, _, _ := d.update(heldBy(lease), breakUpdate)
		want := d.model.Break() || d.model.Broken && d.model.Holder != "" // broken again: no other change
		d.outcome("break", lease.ID.Reveal(), got, want)
		return
	}
	got, r, now := d.update(heldBy(lease), freeUpdate)
	m := d.ended(got, r, now)
	want := d.model.BreakNow(m)
	if want {
		d.model.Expires = m.Elapsed
	}
	d.outcome("free", lease.ID.Reveal(), got, want)
}

func (d *differential) breakReaders() {
	only := d.model.Targets(driver.BreakAnybody())
	if d.rand.IntN(3) > 0 {
		only = []uint64{only[d.rand.IntN(len(only))]}
	}
	var tokens list
	for _, token := range only {
		tokens = append(tokens, int64(token))
	}
	filter := readBy(d.name, field(readerToken, docOf("$in", tokens)))
	if d.rand.IntN(2) == 0 {
		got, _, _ := d.update(filter, breakReaders(hasToken(tokens)))
		d.model.Break(only...)
		d.outcome("reader's break", fmt.Sprint(only), got, true)
		return
	}
	got, _, now := d.update(filter, endReaders(hasToken(tokens), endNumber(driver.EndFreed), d.l.config.history))
	want := d.model.BreakNow(momentOf(now), only...)
	if d.model.Holder == "" {
		d.model.Expires = momentOf(now).Elapsed
	}
	d.outcome("reader's free", fmt.Sprint(only), got, want)
}

func (d *differential) leave() {
	waiter := d.waiter()
	d.update(doc{field(fieldName, d.name), field(fieldQueue+"."+fieldWaiter, waiter)}, leaveUpdate(waiter))
	d.model.Leave(waiter)
	d.note("%s leaves", waiter)
	d.done["leave"]++
}

func (d *differential) write() {
	lease, at := d.lease(), d.model.DataRevision()
	if d.rand.IntN(4) == 0 {
		at.Writes++
	}
	data := []byte(d.oneOf("", "$other", "more"))
	_, _, earliest := d.update(docOf(fieldName, "none"), breakUpdate)
	err := d.l.WriteData(bounded(d.T), lease, data, at)
	_, r, latest := d.update(docOf(fieldName, "none"), breakUpdate)
	if r == nil {
		return
	}
	if d.model.Held(momentOf(earliest)) != d.model.Held(momentOf(latest)) {
		latest = earliest // it expired meanwhile: either outcome is right
		if errors.Is(err, driver.ErrLost) {
			latest = time.Unix(0, int64(d.model.Expires)).UTC()
		}
	}
	want := d.model.Write(lease.ID.Reveal(), data, at, momentOf(latest))
	d.count("write", want)
	d.note("write by %q at %v: %v", lease.ID.Reveal(), at, err)
	if (err == nil) != (want == nil) || !errors.Is(err, want) {
		d.Errorf("write: %v, want %v", err, want)
	}
}
