package cas_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// sharedStore is a store of whose values another program sets the holder, beside the data. As a driver does it, a write
// that does not change the other's holder leaves that alone.
type sharedStore struct {
	*memStore
	other map[string]cas.Other
}

func newSharedStore(clock *locktest.Clock) *sharedStore {
	s := &sharedStore{newStore(), map[string]cas.Other{}}
	s.now = clock.Now
	s.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
		done, err := s.apply(key, data, version)
		s.mu.Lock()
		defer s.mu.Unlock()
		if p, _ := cas.ReadPresent(data); err == nil && !p.Other {
			delete(s.other, key)
		}
		return done, err
	}
	return s
}

func (s *sharedStore) Get(ctx context.Context, key string) (cas.Value, error) {
	v, err := s.memStore.Get(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, there := s.other[key]; there {
		v.Other = &o
	}
	return v, err
}

// set is a write of the other program.
func (s *sharedStore) hold(name string, o cas.Other) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[keyOf(name)]
	s.last++
	v.Version = "other" + time.Duration(s.last).String()
	s.values[keyOf(name)], s.other[keyOf(name)] = v, o
}

func other(mark string, at time.Time) cas.Other {
	return cas.Other{Mark: mark, Owner: "their " + mark, TTL: 10 * time.Second, AcquiredAt: at, RenewedAt: at}
}

func openShared(t *testing.T) (*sharedStore, *locktest.Clock, *cas.Locker) {
	clock := locktest.NewClock()
	store := newSharedStore(clock)
	config := cas.Config{Info: driver.Info{Expiry: driver.ByServer, History: 8}, ClockStep: time.Second, ProbeRounds: -1, Watch: store.watch}
	return store, clock, open(t, store, config)
}

// Promise 1: another program's lease is respected for its TTL since its last renewal, with a record and without.
func TestOtherHolder(t *testing.T) {
	t.Parallel()
	for _, recorded := range []bool{false, true} {
		store, clock, l := openShared(t)
		var ours driver.Lease
		if recorded {
			ours = mustAcquire(t, l, request("x", "1", 5*time.Second))
			clock.Advance(7 * time.Second) // our lease has ended
		}
		store.hold("x", other("a", clock.Now()))
		clock.Advance(9 * time.Second)
		store.hold("x", other("b", clock.Now())) // a renewal
		var held *driver.HeldError
		for _, wait := range []time.Duration{0, 10*time.Second + 900*time.Millisecond} {
			clock.Advance(wait)
			if _, err := l.TryAcquire(t.Context(), request("x", "2", time.Second)); !errors.As(err, &held) || held.Record.Owner != "their b" {
				t.Fatalf("recorded %v, after %v: %v, want an error that the other holds the lock", recorded, wait, err)
			}
		}
		if recorded {
			if _, err := l.Renew(t.Context(), ours); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a renewal after another program took the lock: %v, want ErrLost", err)
			}
			mustRelease(t, l, ours)
		}
		clock.Advance(100 * time.Millisecond)
		lease, err := l.TryAcquire(t.Context(), request("x", "2", time.Second))
		if err != nil {
			t.Fatalf("after the other's lease: %v", err)
		}
		if lease.Token <= max(held.Record.Token, ours.Token) || held.Record.Token <= ours.Token {
			t.Errorf("tokens %d, %d, %d; want rising ones", ours.Token, held.Record.Token, lease.Token)
		}
		r, err := l.Inspect(t.Context(), "x")
		if err != nil || r.Owner != "owner 2" || len(r.History) == 0 || r.History[0].Owner != "their b" {
			t.Errorf("record %+v, %v; want that of owner 2, after the other", r, err)
		}
	}
}

// Promise 3: where grants are counted, each has a token of its own, also if nothing was stored during it: so a person who frees the lock of
// one does not hit the next.
func TestTokensOfOthers(t *testing.T) {
	t.Parallel()
	store, clock, l := openShared(t)
	last, grants := uint64(0), uint64(0)
	seen := func(token uint64, what string) {
		t.Helper()
		if token <= last {
			t.Errorf("%s has token %d after %d", what, token, last)
		}
		last = token
	}
	for _, freed := range []bool{false, false, false, true} { // the first time without a record
		for _, mark := range []string{"a", "b"} {
			grants++
			for again := range 2 { // a renewal
				o := other(fmt.Sprint(mark, again), clock.Now())
				o.Grants = grants
				store.hold("x", o)
				r, err := l.Inspect(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				if again == 0 {
					seen(r.Token, mark)
				} else if r.Token != last {
					t.Errorf("a renewal changes the token %d to %d", last, r.Token)
				}
				if err := l.BreakNow(t.Context(), "x", driver.BreakToken(last+7)); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("a break of another one: %v, want that another holds the lock", err)
				}
				if _, there := store.other[keyOf("x")]; !there {
					t.Fatal("the token of another one frees the lock")
				}
			}
		}
		present := driver.BreakToken(last)
		err := l.Break(t.Context(), "x", present)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "would not notice") {
			t.Errorf("a break: %v, want a refusal that says why", err)
		}
		if freed { // by this package, which counts no grant, or by the other program
			if err := l.BreakNow(t.Context(), "x", present); err != nil {
				t.Fatal(err)
			}
			if _, there := store.other[keyOf("x")]; there {
				t.Error("the other program still holds the lock")
			}
		} else {
			store.hold("x", cas.Other{RenewedAt: clock.Now(), Grants: grants})
		}
		clock.Advance(time.Second)
		lease := mustAcquire(t, l, request("x", "1", time.Second))
		seen(lease.Token, "the next holder")
		if r, err := l.Inspect(t.Context(), "x"); err != nil || !freed && len(r.History) > 0 && r.History[0].Owner != "owner 1" {
			t.Errorf("the past holders are %+v, %v: none of the others was stored", r.History, err)
		}
		grants++
		mustRelease(t, l, lease)
	}
}

// Waiters have positions beside another program's lease. Writing them neither changes its holder nor counts as a renewal, nor does it
// damage the record of a lease that is longer than any of this package.
func TestOtherHolderAndWaiters(t *testing.T) {
	t.Parallel()
	store, clock, l := openShared(t)
	long := other("a", clock.Now())
	long.TTL = 2 * driver.MaxTTL
	store.hold("x", long)
	var first *driver.HeldError
	for i, waiter := range []driver.WaiterID{"w1", "w2", "w3"} {
		req := waiting("x", string(waiter), time.Second, waiter)
		_, err := l.TryAcquire(t.Context(), req)
		var held *driver.HeldError
		if !errors.As(err, &held) || held.Record.Position != i+1 || held.Record.Owner != "their a" {
			t.Fatalf("%v: %v, want position %d", waiter, err, i+1)
		}
		if first == nil {
			first = held
		}
		if held.Record.Revision != first.Record.Revision || held.Record.Token != first.Record.Token {
			t.Errorf("the position of %s changed the revision or the token of the other's lease", waiter)
		}
	}
	if _, there := store.other[keyOf("x")]; !there {
		t.Fatal("a position has replaced the other's holder")
	}
	store.hold("x", other("b", clock.Now()))
	if r, err := l.Inspect(t.Context(), "x"); err != nil || r.Revision == first.Record.Revision || r.Waiters != 3 ||
		r.Token != first.Record.Token {
		t.Errorf("after a renewal: %+v, %v; want the same token, another revision and three waiters", r, err)
	}
	woken := make(chan driver.Wakeup, 10)
	defer l.Wake("x", "w1", func(up driver.Wakeup) { woken <- up })()
	<-woken // in effect
	store.hold("x", cas.Other{RenewedAt: clock.Now()})
	store.mu.Lock()
	for changes := range store.watches {
		changes <- cas.Value{}
	}
	store.mu.Unlock()
	select {
	case up := <-woken:
		if up.Kind != driver.MayBeFree {
			t.Errorf("a release by the other program: %+v", up)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a release by the other program wakes nobody")
	}
	if _, err := l.TryAcquire(t.Context(), request("x", "none", time.Second)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a request without a position: %v, want that the lock is reserved", err)
	}
	req := request("x", "w1", time.Second)
	req.Waiter = "w1"
	if lease, err := l.TryAcquire(t.Context(), req); err != nil || lease.Token <= first.Record.Token {
		t.Errorf("the first waiter: %v, %v", lease, err)
	}
}

// A lease whose age the store does not know is taken over by observation: by Replace, after its revision stayed the same. The lock is not
// withheld forever from callers that come too seldom to observe its holder, unless nothing says when that renewed.
func TestUnsureAge(t *testing.T) {
	t.Parallel()
	clock := locktest.NewClock()
	store := newSharedStore(clock)
	config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}}
	l, sure := open(t, unsure(store), config), open(t, store, config)
	first := mustAcquire(t, l, request("x", "1", 5*time.Second))
	clock.Advance(20 * time.Second)
	var held *driver.HeldError
	if _, err := l.TryAcquire(t.Context(), request("x", "2", time.Second)); !errors.As(err, &held) {
		t.Fatalf("a lease of unknown age: %v, want that it is held", err)
	}
	data := []byte("data")
	if err := l.WriteData(t.Context(), first, data, driver.DataRevision{Token: first.Token}); err != nil {
		t.Error(err)
	}
	if r, err := sure.Inspect(t.Context(), "x"); err != nil || r.State != driver.StateFree {
		t.Errorf("%+v, %v: the write has extended the lease for others", r, err)
	}
	req := request("x", "2", time.Second)
	req.Replace = held.Record.Revision
	if lease, err := l.TryAcquire(t.Context(), req); err != nil || lease.Token <= first.Token {
		t.Errorf("Replace: %v, %v", lease, err)
	}
	mustRenew(t, l, driver.Lease{Name: "x", ID: driver.NewLeaseID("2"), TTL: time.Second})
	if r, err := sure.Inspect(t.Context(), "x"); err != nil || r.Remaining != time.Second {
		t.Errorf("%+v, %v: a renewal lasts for its TTL", r, err)
	}
	clock.Advance(time.Second + cas.MaxDisagreement - time.Millisecond)
	if _, err := l.TryAcquire(t.Context(), request("x", "3", time.Second)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("before the bound: %v, want that it is held", err)
	}
	clock.Advance(time.Millisecond)
	mustAcquire(t, l, request("x", "3", time.Second))
	store.hold("y", other("a", time.Time{}))
	clock.Advance(24 * time.Hour)
	if _, err := sure.TryAcquire(t.Context(), request("y", "1", time.Second)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a lease without a time: %v, want that it is held", err)
	}
}

// ordered is a store whose values have an order.
func ordered(store cas.Store, order uint64) cas.Store {
	return altered{store, func(v *cas.Value) { v.Order = order }}
}

// unsure is a store that does not know the age of leases.
func unsure(store cas.Store) cas.Store { return altered{store, func(v *cas.Value) { v.Unsure = true }} }

// No call is decided that concerns a lock with readers whose age is unsure: some count as valid, and others not.
func TestUnsureReaders(t *testing.T) {
	clock, store := locktest.NewClock(), newStore()
	store.now = clock.Now
	config := cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer}}
	sure, unsure := open(t, store, config), open(t, unsure(store), config)
	reads := func(id string) driver.Request {
		r := reading("x", id, 5*time.Second)
		return r
	}
	reader := mustAcquire(t, sure, reads("1"))
	clock.Advance(20 * time.Second) // of a server that is ahead
	for _, req := range []driver.Request{request("x", "w", 5*time.Second), reads("2")} {
		_, err := unsure.TryAcquire(t.Context(), req)
		if err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "disagree") {
			t.Errorf("a request in mode %v: %v", req.Mode, err)
		}
	}
	if _, err := sure.Renew(t.Context(), reader); err != nil {
		t.Errorf("renewal by the server that is right: %v", err)
	}
}

// Promise 3: a value that was deleted and made again within a step of the clock has a greater token, also when it is made by a position,
// before the first grant, and for a key without a value.
func TestOrderOfValues(t *testing.T) {
	for _, how := range []string{"another program", "position", "no value"} {
		store, clock, _ := openShared(t)
		config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ClockStep: time.Second, Watch: store.watch}
		store.hold("x", cas.Other{}) // another program has made the value, and has released it
		last := uint64(0)
		for order := range uint64(4) {
			l := open(t, ordered(store, 100_000+10*order), config)
			req := request("x", "1", 5*time.Second)
			switch {
			case how == "another program":
				store.hold("x", cas.Other{})
			case how == "position" && order > 0:
				store.hold("x", other("a", clock.Now()))
				req = waiting("x", "1", 5*time.Second, "w")
				if _, err := l.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
					t.Fatal(err)
				}
				clock.Advance(12 * time.Second)
			}
			for range 3 {
				lease := mustAcquire(t, l, req)
				if lease.Token <= last {
					t.Errorf("%s: token %d after %d", how, lease.Token, last)
				}
				last = lease.Token
				mustRelease(t, l, lease)
			}
			store.overwrite(keyOf("x"), nil) // somebody deletes it
			delete(store.other, keyOf("x"))
		}
	}
}
