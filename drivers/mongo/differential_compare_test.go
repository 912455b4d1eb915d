package mongo

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

func (d *differential) compareRefusals(got, want *driver.HeldError, who asker, mode driver.Mode) {
	g, w := got.Record, want.Record
	g.Revision, w.Revision, w.Data = driver.Revision{}, driver.Revision{}, nil // a reply has no data
	if len(w.Holders) > 0 {
		g.Holders, w.Holders, g.Broken, w.Broken = nil, nil, false, false
	}
	if at := d.model.Position(who.id); at > 0 && d.model.Queue[at-1].Shared != (mode == driver.Shared) {
		g.Remaining, w.Remaining = 0, 0
	}
	if !d.reserves() {
		w.Waiters = 0
	}
	if who.id == "" { // the reply has only the reservation
		g.Waiters, w.Waiters = 0, 0
	}
	if got.Reserved != want.Reserved || fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
		d.Errorf("refused with reserved %v, %+v\nwant reserved %v, %+v", got.Reserved, g, want.Reserved, w)
	}
}

// compare compares the whole record with the model.
func (d *differential) compare(before lockstate.Lock) {
	cursor, err := d.coll.Aggregate(bounded(d.T), list{
		docOf("$match", docOf(fieldName, d.name)), docOf("$set", slices.Concat(doc{field(fieldNow, serverNow)}, wokenFields, sharedFields[2:])),
	})
	if err != nil {
		d.Fatal(err)
	}
	var all []bson.Raw
	if err := cursor.All(bounded(d.T), &all); err != nil || len(all) != 1 {
		d.Fatal(len(all), err)
	}
	r, err := decodeRecord(all[0])
	if err != nil {
		d.Fatal(err)
	}
	k, now := &d.model, momentOf(r.now)
	if k.Renewals > before.Renewals && k.Token == before.Token && len(k.Readers) == 0 {
		// A renewal has a time of its own.
		k.RenewedAt = maxTime(k.RenewedAt, before.RenewedAt.Add(time.Millisecond))
	}
	pair := revisionPair{leaseID: r.leaseID, renewedAt: r.renewedAt}
	if len(k.Readers) > 0 {
		pair.shared = sharedRevision(r.token, r.renewals)
	}
	if k.Holder != "" && (len(d.seen) == 0 || d.seen[len(d.seen)-1].real() != pair.real()) {
		held := *k
		held.Expires = now.Elapsed + 1 // the revision is that of a lease that is held
		pair.model = held.Record(d.name, now).Revision
		d.seen = append(d.seen, pair)
	}
	var queue []lockstate.Waiter
	array, _ := all[0].Lookup(fieldQueue).ArrayOK()
	values, _ := array.Values()
	for _, v := range values {
		until, _ := v.Document().Lookup(fieldUntil).DateTimeOK()
		polls, _ := v.Document().Lookup(fieldPolls).BooleanOK()
		shared, _ := v.Document().Lookup(fieldShared).BooleanOK()
		id := v.Document().Lookup(fieldWaiter).StringValue()
		queue = append(queue, lockstate.Waiter{ID: id, Until: elapsed(time.UnixMilli(until)), Polls: polls, Shared: shared})
	}
	reserve := int64(0)
	switch {
	case d.reserves():
		reserve = driver.Turn(len(k.Queue) + 1).Milliseconds()
	case k.Emptied:
		reserve = emptied
		d.count("queue", "emptied")
	}
	stored, _ := all[0].Lookup(fieldReserve).AsInt64OK()
	var woken []hint
	freed := *k // the lock after a release, or after that of one reader
	if freed.Holder != lockstate.Shared || !k.Held(now) {
		freed.Holder, freed.Readers = "", nil
	}
	line := slices.ContainsFunc(k.Queue, func(w lockstate.Waiter) bool { return w.Shared })
	for _, w := range freed.Woken(now) {
		position := k.Position(w.ID)
		switch {
		case freed.Holder != "":
			position = 1
		case line:
			position = 1 + int(k.Turn(w.ID)/driver.TurnLength)
		}
		woken = append(woken, hint{d.name, w.ID, position})
	}
	var readers []lockstate.Reader
	for _, one := range r.readers {
		readers = append(readers, lockstate.Reader{Holder: one.id, Owner: one.owner, Token: uint64(one.token), TTL: one.ttl,
			Expires: elapsed(one.expires), Broken: one.broken, Acquired: one.acquired.UnixMilli(), Renewed: one.renewed.UnixMilli()})
	}
	got, want := fmt.Sprintf("%+v", hintsTo(d.name, all[0])), fmt.Sprintf("%+v", woken)
	for _, c := range []struct {
		what      string
		same      bool
		got, want any
	}{
		{"holder", r.leaseID == k.Holder, r.leaseID, k.Holder},
		{"owner", r.owner == k.Owner, r.owner, k.Owner},
		{"token", uint64(r.token) == k.Token, r.token, k.Token},
		{"TTL", r.ttl == k.TTL || k.Holder == "" && r.version == sharedVersion, r.ttl, k.TTL}, // unknown of readers that have ended
		{"expiry", r.leaseID == "" && k.Token == 0 || elapsed(r.expiresAt) == k.Expires, elapsed(r.expiresAt), k.Expires},
		{"time of the grant", r.acquiredAt.Equal(k.AcquiredAt), r.acquiredAt, k.AcquiredAt},
		{"time of the renewal", r.renewedAt.Equal(k.RenewedAt), r.renewedAt, k.RenewedAt},
		{"break", r.broken == k.Broken, r.broken, k.Broken},
		{"data", bytes.Equal(r.data, k.Data), r.data, k.Data},
		{"writes", uint64(r.writes) == k.Writes, r.writes, k.Writes},
		{"readers", slices.Equal(readers, k.Readers), readers, k.Readers},
		{"queue", slices.Equal(queue, k.Queue), queue, k.Queue},
		{"reservation", stored == reserve, stored, reserve},
		{"waiters that a release wakes", got == want, got, want},
	} {
		if !c.same {
			d.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	past, wantPast := r.pastHolders(driver.DefaultHistory), k.PastHolders(driver.DefaultHistory, now)
	if !d.stepped && !slices.EqualFunc(past, wantPast, sameTenure) {
		d.Errorf("history:\n%+v, want\n%+v", past, wantPast)
	}
}

// sameTenure allows for a release whose two times the server has read one after the other.
func sameTenure(x, y driver.Tenure) bool {
	late := x.Until.Sub(y.Until)
	stamped := x.End == driver.EndReleased || x.End == driver.EndFreed || x.End == driver.EndBroken
	return x.Owner == y.Owner && x.Token == y.Token && x.Mode == y.Mode && x.End == y.End && x.From.Equal(y.From) &&
		(late == 0 || stamped && late > 0 && late < 100*time.Millisecond)
}

func maxTime(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// A field that the rules get is one that this driver must store, and compare must compare.
func TestEveryFieldIsCompared(t *testing.T) {
	const compared = 15
	if n := reflect.TypeFor[lockstate.Lock]().NumField(); n != compared {
		t.Errorf("a lock has %d fields, and compare knows %d", n, compared)
	}
}
