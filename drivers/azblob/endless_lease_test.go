package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// takenByHand makes a lock of an earlier holder, whose lease then is taken by another program for so many seconds; -1
// means without an end. It returns the earlier holder's lease.
func takenByHand(t *testing.T, store *testContainer, l *Locker, name string, seconds int32) driver.Lease {
	t.Helper()
	before := used(t, l, name)
	if _, err := rawLease(t, store, name).AcquireLease(bounded(t), seconds, nil); err != nil {
		t.Fatal(err)
	}
	return before
}

// records returns what each way to read a lock says of it.
func records(t *testing.T, l *Locker, name string) map[string]driver.Record {
	t.Helper()
	all := map[string]driver.Record{"Inspect": inspect(t, l, name)}
	for r, err := range l.List(bounded(t), name) {
		if err != nil {
			t.Fatal(err)
		}
		all["List"] = r
	}
	many := []string{name} // so many that they are listed
	for i := range listCost {
		many = append(many, fmt.Sprint(name, "-", i))
	}
	for way, names := range map[string][]string{"InspectBatch": {name}, "InspectBatch by listing": many} {
		found, errs := l.InspectBatch(bounded(t), "", names)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		all[way] = found[0]
	}
	return all
}

// A lease that never ends is reported as such, and never with the owner or the token of the holder before.
func TestEndlessLeaseIsReported(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	takenByHand(t, store, l, "job", -1)
	for way, r := range records(t, l, "job") {
		if r.State != driver.StateHeld || !r.Endless || r.Token != 0 || r.Owner != "" || !r.AcquiredAt.IsZero() || r.Broken {
			t.Errorf("%s: %+v", way, r)
		}
	}
	held := acquire(t, l, request("held"))
	for way, r := range records(t, l, "held") {
		if r.State != driver.StateHeld || r.Endless || r.Token != held.Token {
			t.Errorf("%s of a holder: %+v", way, r)
		}
	}
	// A lease without an end of the holder on record is the holder's all the same.
	b := l.lockBlob("held", held.ID.Reveal())
	if _, err := b.lease().AcquireLease(bounded(t), -1, nil); err != nil {
		t.Fatal(err)
	}
	if r := inspect(t, l, "held"); !r.Endless || r.Token != held.Token || r.Owner != held.Owner {
		t.Errorf("of the holder on record: %+v", r)
	}
}

// The token of the holder before is not that of another program's lease, whether the lease ends or not.
func TestNoTokenOfAnEarlierHolder(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	takenByHand(t, store, l, "job", 60)
	if r := inspect(t, l, "job"); r.State != driver.StateHeld || r.Endless || r.Token != 0 || r.Owner != "" {
		t.Errorf("%+v", r)
	}
	for r, err := range l.List(bounded(t), "") {
		if err != nil || r.Token != 0 || r.Owner != "" {
			t.Errorf("listed: %+v, %v", r, err)
		}
	}
}

// A holder without a token can be broken, and nobody else is broken in its place.
func TestBreakOfAnUnknownHolder(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	ways := map[string]func(context.Context, string, driver.BreakTarget) error{"Break": l.Break, "BreakNow": l.BreakNow}
	for _, c := range []struct {
		way     string
		seconds int32
	}{{"Break", -1}, {"BreakNow", -1}, {"BreakNow", 60}} {
		breakIt, name := ways[c.way], c.way+"-of-a-lease"
		if c.seconds > 0 {
			name += "-that-ends"
		}
		before := takenByHand(t, store, l, name, c.seconds)
		wantHeld(t, l, name)
		if err := breakIt(bounded(t), name, driver.BreakToken(before.Token)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s, with the token of the holder before: %v", name, err)
		}
		wantHeld(t, l, name)
		if err := breakIt(bounded(t), name, driver.BreakUnknown()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := breakIt(bounded(t), name, driver.BreakUnknown()); err != nil {
			t.Errorf("%s, of a free lock: %v", name, err)
		}
		next := acquire(t, l, request(name))
		if next.Token <= before.Token {
			t.Errorf("%s: token %d after %d", name, next.Token, before.Token)
		}
		for way, breakIt := range ways {
			if err := breakIt(bounded(t), name, driver.BreakUnknown()); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("%s of a holder with a token: %v", way, err)
			}
		}
		if _, err := l.Renew(bounded(t), next); err != nil {
			t.Errorf("%s: a holder with a token was broken: %v", name, err)
		}
	}
	// A lease that ends keeps its length.
	takenByHand(t, store, l, "runs-out", 60)
	if err := l.Break(bounded(t), "runs-out", driver.BreakUnknown()); err != nil {
		t.Error(err)
	}
	if r := inspect(t, l, "runs-out"); r.State != driver.StateHeld || !r.Broken {
		t.Errorf("%+v", r)
	}
	// The lease of a blob that no holder has written.
	if err := l.createBlob(bounded(t), l.lockBlob("never-held", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := rawLease(t, store, "never-held").AcquireLease(bounded(t), -1, nil); err != nil {
		t.Fatal(err)
	}
	if r := inspect(t, l, "never-held"); !r.Endless {
		t.Errorf("%+v", r)
	}
	if err := l.Break(bounded(t), "never-held", driver.BreakUnknown()); err != nil {
		t.Error(err)
	}
	acquire(t, l, request("never-held"))
}

// A holder is unknown until it has written its record. One that does so before the break arrives is left alone, and the
// caller learns that nothing was broken.
func TestBreakOfAHolderThatBecomesKnown(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	for _, target := range []driver.BreakTarget{driver.BreakUnknown(), driver.BreakToken(1)} {
		name := "job-" + map[bool]string{true: "unknown", false: "token"}[target == driver.BreakUnknown()]
		l, w := store.lockerWithFaults()
		other := store.locker()
		before := used(t, other, name)
		req := request(name)
		b := other.lockBlob(name, req.ID.Reveal())
		if target == driver.BreakUnknown() { // the next holder has the lease, and no record yet
			if err := other.takeLease(bounded(t), b, req.TTL); err != nil {
				t.Fatal(err)
			}
		} else {
			before = acquire(t, other, request(name))
			target = driver.BreakToken(before.Token)
		}
		var next driver.Lease
		w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			release(t, other, before) // which does nothing unless it holds the lock
			next = acquire(t, other, req)
			return base.RoundTrip(r)
		})
		if err := l.BreakNow(bounded(t), name, target); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v: %v, want ErrHeld", target, err)
		}
		if _, err := other.Renew(bounded(t), next); err != nil {
			t.Errorf("%v: the next holder was broken: %v", target, err)
		}
	}
}
