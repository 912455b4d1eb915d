package cas_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// faults are what becomes of the next writes; later ones succeed.
type faults struct{ next []castest.Fault }

func (f *faults) draw() (now castest.Fault) {
	if len(f.next) > 0 {
		now, f.next = f.next[0], f.next[1:]
	}
	return now
}

// Promise 5: each call recognizes its own write whose answer was lost.
func TestLostAnswers(t *testing.T) {
	lost, done := castest.Fault{Lost: true}, castest.Fault{Unanswered: true}
	late := castest.Fault{Late: time.Millisecond}
	for _, expiry := range []driver.Expiry{driver.ByServer, driver.ByObservation} {
		for how, next := range map[string][]castest.Fault{
			"lost": {lost}, "done": {done}, "late": {late}, "twice": {{Twice: true}},
			"lost, done": {lost, done}, "done, lost": {done, lost}, "late, late, late": {late, late, late},
		} {
			for _, kept := range []bool{true, false} {
				t.Run(fmt.Sprint(expiry, " ", how, " ", kept), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testLostAnswers(t, expiry, next, kept) })
				})
			}
		}
	}
}

// testLostAnswers makes the calls of one lease, each with the next faults. With kept, they carry its State.
func testLostAnswers(t *testing.T, expiry driver.Expiry, next []castest.Fault, kept bool) {
	ctx, now := t.Context(), &faults{}
	l := open(t, castest.Faulty(t, newStore(), now.draw), cas.Config{Info: driver.Info{Expiry: expiry, History: driver.DefaultHistory}})
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	inspect := func() driver.Record {
		t.Helper()
		time.Sleep(time.Second) // a late write arrives
		r, err := l.Inspect(ctx, "n")
		must("inspect", err)
		return r
	}
	now.next = next
	first, err := l.TryAcquire(ctx, request("n", "first", time.Minute))
	must("acquire", err)
	if !kept {
		first.State = driver.LeaseState{}
	}
	if r := inspect(); r.Token != first.Token || r.State != driver.StateHeld {
		t.Errorf("after the grant of %v the record is %+v", first, r)
	}
	now.next = next
	renewed, err := l.Renew(ctx, first)
	must("renew", err)
	if kept {
		first = renewed
	}
	now.next = next
	must("write", l.WriteData(ctx, first, []byte("one"), driver.DataRevision{Token: first.Token}))
	if _, at, err := l.ReadData(ctx, "n"); err != nil || at.Writes != 1 {
		t.Errorf("after one write the data have revision %v, error %v", at, err)
	}
	now.next = next
	must("release", l.Release(ctx, first))
	now.next = next
	second, err := l.TryAcquire(ctx, request("n", "second", time.Minute))
	must("acquire again", err)
	if !kept {
		second.State = driver.LeaseState{}
	}
	if r := inspect(); r.Token != second.Token || second.Token <= first.Token || len(r.History) != 1 {
		t.Errorf("after the grant to %v the record is %+v", second, r)
	}
	now.next = next
	must("break", l.Break(ctx, "n", driver.BreakAnybody()))
	if r := inspect(); !r.Broken {
		t.Errorf("after Break the record is %+v", r)
	}
	now.next = next
	must("release", l.Release(ctx, second))
	if r := inspect(); r.State != driver.StateFree || string(r.Data) != "one" {
		t.Errorf("after the release the record is %+v", r)
	}
	third, err := l.TryAcquire(ctx, request("n", "third", time.Minute))
	must("acquire", err)
	now.next = next
	must("break now", l.BreakNow(ctx, "n", driver.BreakToken(third.Token)))
	if r := inspect(); r.State != driver.StateFree || r.Token != third.Token || len(r.History) != 3 {
		t.Errorf("after BreakNow the record is %+v", r)
	}
}

// BreakNow whose answer was lost does not free the next holder's lock.
func TestLostBreakSparesTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		mustAcquire(t, l, request("n", "first", time.Minute))
		var next driver.Lease
		store.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
			store.put = nil
			_, _ = store.apply(key, data, version)
			next, _ = l.TryAcquire(ctx, request("n", "next", time.Minute))
			return cas.Written{}, castest.ErrNoAnswer
		}
		if err := l.BreakNow(ctx, "n", driver.BreakAnybody()); err != nil {
			t.Error(err)
		}
		if _, err := l.Renew(ctx, next); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// A refusal is certain. If the write of a grant can still arrive, the outcome is unknown.
func TestRefusalWhileAGrantIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		step := time.Duration(0)
		store.now = func() time.Time { return time.Now().Add(step) }
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		mustAcquire(t, l, request("n", "first", time.Minute))
		time.Sleep(time.Minute)
		store.put = func(context.Context, string, []byte, string) (cas.Written, error) {
			step = -30 * time.Second // the lease seems to go on
			return cas.Written{}, castest.ErrNoAnswer
		}
		if _, err := l.TryAcquire(ctx, request("n", "next", time.Minute)); err == nil || driver.OutcomeKnown(err) {
			t.Errorf("while the write of a grant may arrive: %v", err)
		}
	})
}

// A small step of the clock, back and forth, ends no lease early.
func TestClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		step := time.Duration(0)
		store.now = func() time.Time { return time.Now().Add(step) }
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		mustRelease(t, l, mustAcquire(t, l, request("n", "first", 10*time.Second)))
		step = -4 * time.Second
		mustAcquire(t, l, request("n", "second", 10*time.Second))
		step = 0
		time.Sleep(9 * time.Second)
		if _, err := l.TryAcquire(ctx, request("n", "third", 10*time.Second)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("9 s of 10 s after the grant: %v", err)
		}
		step = -24 * time.Hour // promise 10: the lock would be stuck for a day
		time.Sleep(time.Second)
		r, err := l.Inspect(ctx, "n")
		if err != nil || r.State != driver.StateHeld || r.Remaining < 23*time.Hour {
			t.Fatalf("after a step of a day: %+v, %v", r, err)
		}
		req := request("n", "third", 10*time.Second)
		req.Replace = r.Revision
		third, err := l.TryAcquire(ctx, req)
		if err != nil || third.Token <= r.Token {
			t.Errorf("the takeover: %v, %v", third, err)
		}
	})
}

// Promise 2: without a clock, a lease has ended only when a whole TTL lies between the end of the first read of it
// and the beginning of the last.
func TestObservation(t *testing.T) {
	const ttl = 10 * time.Second
	type delays struct{ before, after time.Duration } // the value is read
	for name, c := range map[string]struct {
		first, last delays
		renewAt     time.Duration // by the holder
		lastAt      time.Duration // the last read begins
		granted     bool
	}{
		"unchanged for the TTL": {lastAt: ttl + ttl/cas.MarginPart, granted: true},
		"a moment less":         {lastAt: ttl + ttl/cas.MarginPart - 1},
		"renewed during the first read": {first: delays{before: 5 * time.Second}, renewAt: 4 * time.Second,
			lastAt: 12 * time.Second},
		"and unchanged for the TTL": {first: delays{before: 5 * time.Second}, renewAt: 4 * time.Second,
			lastAt: 16 * time.Second, granted: true},
		"the answer of the first read is late": {first: delays{after: 5 * time.Second}, lastAt: 14 * time.Second},
		"the last read lasts long":             {last: delays{after: 8 * time.Second}, lastAt: 5 * time.Second},
		"renewed before the last read":         {renewAt: 11 * time.Second, lastAt: 12 * time.Second},
		"renewed while the answer of the last is late": {last: delays{after: 2 * time.Second}, renewAt: 12 * time.Second,
			lastAt: 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, store := t.Context(), newStore()
				store.now = nil
				var now delays
				store.get = func(_ context.Context, key string) (cas.Value, error) {
					d := now
					time.Sleep(d.before)
					v := store.read(key)
					time.Sleep(d.after)
					return v, nil
				}
				holder, observer := open(t, store, cas.Config{}), open(t, store, cas.Config{CallLimit: time.Minute})
				lease := mustAcquire(t, holder, request("n", "holder", ttl))
				began := time.Now()
				renewed := make(chan error, 1)
				go func() {
					if c.renewAt > 0 {
						time.Sleep(c.renewAt)
						renewed <- errOf(holder.Renew(ctx, lease))
					}
				}()
				now = c.first
				if r, err := observer.Inspect(ctx, "n"); err != nil || r.State != driver.StateHeld || r.RemainingKnown {
					t.Fatalf("the first read: %+v, %v", r, err)
				}
				time.Sleep(time.Until(began.Add(c.lastAt)))
				now = c.last
				_, err := observer.TryAcquire(ctx, request("n", "observer", ttl))
				if c.renewAt > 0 {
					if err := <-renewed; err != nil {
						t.Errorf("the holder's renewal: %v", err)
					}
				}
				if c.granted && err != nil || !c.granted && !errors.Is(err, driver.ErrHeld) {
					t.Errorf("the observer's request: %v, want granted: %v", err, c.granted)
				}
			})
		})
	}
}

// A process that was paused after a read does not take what it read for the present state.
func TestPausedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		store.now = nil
		var pause time.Duration
		store.get = func(_ context.Context, key string) (cas.Value, error) {
			v := store.read(key)
			time.Sleep(pause)
			return v, nil
		}
		holder, observer := open(t, store, cas.Config{}), open(t, store, cas.Config{CallLimit: time.Hour})
		lease := mustAcquire(t, holder, request("n", "holder", 10*time.Second))
		if _, err := observer.Inspect(ctx, "n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		pause = time.Minute
		if r, err := observer.Inspect(ctx, "n"); err != nil || r.State != driver.StateHeld {
			t.Errorf("a read that began 5 s after the first shows the lock as %v, error %v", r.State, err)
		}
		mustRenew(t, holder, lease)
	})
}

// Damaged and foreign values are errors that name the key. Nothing overwrites them.
func TestDamagedValue(t *testing.T) {
	ctx, store := t.Context(), newStore()
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
	lease := mustAcquire(t, l, request("n", "first", time.Minute))
	for _, name := range []string{"a", "z"} {
		mustAcquire(t, l, request(name, name, time.Minute))
	}
	whole := string(store.read("n").Data)
	swap := func(old, put string) string {
		if !strings.Contains(whole, old) {
			t.Fatalf("the record lacks %s:\n%s", old, whole)
		}
		return strings.Replace(whole, old, put, 1)
	}
	damages := map[string]string{
		"empty": "", "blank": " \n", "text": "held by me", "null": "null", "an empty object": "{}", "a list": "[]",
		"more after it":    whole + whole,
		"a future version": swap(`"version":1`, `"version":2`), "an unknown field": swap(`"name"`, `"kind":"x","name"`),
		"another name": swap(`"name":"n"`, `"name":"m"`), "no name": swap(`"name":"n"`, `"name":""`),
		"another way": swap(`"by the server"`, `"by observation"`), "the last token": swap(`"token":`, `"token":9223372036854775807,"renewals":`),
		"no token": swap(`"token":`, `"token":0,"renewals":`), "a negative TTL": swap(`"ttlNanoseconds":`, `"ttlNanoseconds":-`),
		"removed and held": swap(`"name"`, `"removed":true,"name"`), "no time": swap(`"acquiredAt"`, `"renewedAt"`),
	}
	for n := range len(whole) - 1 {
		damages["cut at "+whole[:n]] = whole[:n]
	}
	for what, content := range damages {
		store.overwrite("n", []byte(content))
		before, last := store.values["n"], store.last
		errs := map[string]error{}
		_, errs["TryAcquire"] = l.TryAcquire(ctx, request("n", "second", time.Minute))
		errs["Renew"], errs["Release"] = errOf(l.Renew(ctx, lease)), l.Release(ctx, lease)
		_, errs["Inspect"] = l.Inspect(ctx, "n")
		errs["Break"], errs["BreakNow"] = l.Break(ctx, "n", driver.BreakAnybody()), l.BreakNow(ctx, "n", driver.BreakAnybody())
		_, _, errs["ReadData"] = l.ReadData(ctx, "n")
		errs["WriteData"] = l.WriteData(ctx, lease, nil, driver.DataRevision{})
		errs["RemoveProbe"] = l.RemoveProbe(ctx, "n")
		_, batch := l.InspectBatch(ctx, "", []string{"a", "n"})
		errs["InspectBatch"] = batch[1]
		var names []string
		for r, err := range l.List(ctx, "") {
			if names = append(names, r.Name); r.Name == "n" {
				errs["List"] = err
			}
		}
		if want := []string{"a", "n", "z"}; !reflect.DeepEqual(names, want) || batch[0] != nil {
			t.Errorf("%s: listed %q, want %q; another of the batch: %v", what, names, want, batch[0])
		}
		for call, err := range errs {
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), "key n ") {
				t.Errorf("%s: %s: %v", what, call, err)
			}
		}
		if !reflect.DeepEqual(store.values["n"], before) || store.last != last {
			t.Errorf("%s: it was overwritten", what)
		}
	}
}

// Values that are no lock's are not listed, and a long name is found by its hash.
func TestListOfASharedStore(t *testing.T) {
	ctx, store := t.Context(), newStore()
	l := open(t, store, cas.Config{})
	store.overwrite("README", []byte("not a lock"))
	store.overwrite("UPPER/x", []byte("nor this"))
	long := strings.Repeat("x", 300)
	mustAcquire(t, l, request(long, "a", time.Minute))
	probe := mustAcquire(t, l, request("probe", "b", time.Minute))
	mustRelease(t, l, probe)
	if err := l.RemoveProbe(ctx, "probe"); err != nil {
		t.Fatal(err)
	}
	for r, err := range l.List(ctx, "") {
		if err != nil || r.Name != long {
			t.Errorf("listed %q, error %v", r.Name, err)
		}
	}
	if r, err := l.Inspect(ctx, "probe"); err != nil || r.Token != 0 || len(r.History) > 0 {
		t.Errorf("a removed record: %+v, %v", r, err)
	}
	again, err := l.TryAcquire(ctx, request("probe", "c", time.Minute))
	if err != nil || again.Token <= probe.Token { // promise 3
		t.Errorf("after the removal: %v, %v; the token was %d", again, err, probe.Token)
	}
}

// An error of the store gets no meaning that it does not have.
func TestCauseOfAnotherLock(t *testing.T) {
	ctx, store := t.Context(), newStore()
	l := open(t, store, cas.Config{})
	store.put = failing(fmt.Errorf("the context ended: %w", driver.ErrLost))
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := l.TryAcquire(ctx, request("n", "a", time.Minute)); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("got %v", err)
	}
	store.get = func(context.Context, string) (cas.Value, error) { return cas.Value{}, driver.ErrLost }
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Minute}
	if _, err := l.Renew(t.Context(), lease); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("the store cannot know that a lease is lost: %v", err)
	}
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
