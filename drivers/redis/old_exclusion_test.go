package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// A holder that extends its key and leaves the value is alive: a client that tries now and then, and sees the same value at the time at
// which the key should have ended, does not take it over.
func TestOldHolderThatExtends(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := holdfast.New(openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Shutdown(context.WithoutCancel(t.Context())) }()
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	const ttl = 3 * time.Second
	var kept time.Time // when the last request began that gave the key its expiry
	keep := func() {
		t.Helper()
		began := time.Now()
		got, err := old.extend(t.Context(), "theirs", ttl)
		if err == nil && !got { // the first time, and on a machine that is too slow
			got, err = old.take(t.Context(), "theirs", ttl)
		}
		if err != nil || !got {
			t.Fatal(got, err)
		}
		kept = began
	}
	try := func() {
		t.Helper()
		hold, err := c.TryLock(t.Context(), "n")
		switch {
		case err == nil && time.Since(kept) < ttl:
			t.Fatalf("two holders, %v after the key was extended", time.Since(kept))
		case err == nil:
			if err := hold.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		case !errors.Is(err, holdfast.ErrHeld):
			t.Fatal(err)
		}
	}
	keep()
	time.Sleep(ttl / 3)
	for range 2 {
		try()
		for range 3 { // longer than what was left of the key
			keep()
			time.Sleep(ttl / 3)
		}
	}
	try()
	// Without another extension the key ends, and the lock is free.
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if hold, err := c.TryLock(t.Context(), "n"); err == nil {
			if since := time.Since(kept); since < ttl {
				t.Errorf("two holders, %v after the key was extended", since)
			}
			_ = hold.Release(t.Context())
			return
		}
		if time.Now().After(end) {
			t.Fatal("the lock does not become free")
		}
	}
}

// As long as an old key is there, nothing takes it over: neither a waiter that has seen nothing change, as after a step back of the
// server's clock, nor a grant that was decided on wrongly.
func TestOldKeyIsNeverReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed)
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	for _, ttl := range []time.Duration{time.Minute, 0} { // 0: without an expiry
		if got, err := old.take(t.Context(), "theirs", ttl); !got || err != nil {
			t.Fatal(got, err)
		}
		req := request("n", "a")
		for range 3 {
			_, err := l.TryAcquire(t.Context(), req)
			var held *driver.HeldError
			if !errors.As(err, &held) || ttl == 0 && held.Record.Remaining < 24*time.Hour {
				t.Fatalf("%v: %v", ttl, err)
			}
			req.Replace = held.Record.Revision
		}
		present, err := l.store.Get(t.Context(), "n")
		if err != nil || present.Other == nil {
			t.Fatal(present, err)
		}
		until := time.Now().Add(time.Minute).UTC()
		grant := fmt.Sprintf(`{"version":1,"name":"n","unique":"u-1","expiry":"server","owner":"o","holder":"h","token":9,`+
			`"ttlNanoseconds":%d,"acquiredAt":%q,"renewedAt":%q}`, time.Minute, until.Format(time.RFC3339), until.Format(time.RFC3339))
		if _, err := l.store.Put(t.Context(), "n", []byte(grant), present.Version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("%v: a grant over an old key: %v", ttl, err)
		}
		if value, err := old.client.Get(t.Context(), old.key).Result(); value != "theirs" {
			t.Errorf("the old key has %q, %v", value, err)
		}
		if got, err := old.release(t.Context(), "theirs"); !got || err != nil {
			t.Fatal(got, err)
		}
	}
}

// An extension between the read and the write of a person's request is noticed: the write is based on another version.
func TestVersionOfAnOldKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed)
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	versions := map[string]string{}
	note := func(what string, got bool, err error) {
		t.Helper()
		v, failed := l.store.Get(t.Context(), "n")
		if !got || errors.Join(err, failed) != nil {
			t.Fatalf("%s: %v, %v, %v", what, got, err, failed)
		}
		if before := versions[v.Version]; before != "" {
			t.Errorf("%s has the version of %s", what, before)
		}
		versions[v.Version] = what
	}
	note("none", true, nil)
	got, err := old.take(t.Context(), "theirs", time.Minute)
	note("a key", got, err)
	got, err = old.extend(t.Context(), "theirs", 2*time.Minute)
	note("the key with another expiry", got, err)
	got, err = old.client.Persist(t.Context(), old.key).Result()
	note("the key without an expiry", got, err)
}

// While the lock is held here, also while it is renewed, no old program gets it, whatever its token is.
func TestOldProgramsWhileHeld(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed)
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	req := request("n", "a")
	req.TTL = 2 * time.Second
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var programs sync.WaitGroup
	var tries atomic.Int64
	for _, token := range []string{"h", "held by Holdfast", "~", "0123456789abcdef"} {
		programs.Go(func() {
			for ; ctx.Err() == nil; tries.Add(1) {
				took, err1 := old.take(ctx, token, time.Minute)
				obtained, err2 := old.obtain(ctx, token, time.Minute)
				released, err3 := old.release(ctx, token)
				extended, err4 := old.extend(ctx, token, time.Millisecond)
				if took || obtained || released || extended {
					t.Errorf("%q: took %v, obtained %v, released %v, extended %v", token, took, obtained, released, extended)
				}
				if err := errors.Join(err1, err2, err3, err4); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for began := time.Now(); time.Since(began) < 3*req.TTL && err == nil; time.Sleep(req.TTL / 20) {
		lease, err = l.Renew(t.Context(), lease)
	}
	stop()
	programs.Wait()
	if err != nil || tries.Load() == 0 {
		t.Errorf("renew: %v; %d tries", err, tries.Load())
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if got, err := old.obtain(t.Context(), "h", time.Minute); err != nil || !got {
		t.Errorf("after the release: %v, %v", got, err)
	}
}

// span is when a holder could count on the lock, by the clock of this process: from its grant until its release or the end of its lease.
type span struct {
	who         string
	from, until time.Time
}

// Old and new programs compete, extend and renew, and die with the lock. Never do two of them hold it.
func TestOldAndNewCompete(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const ttl = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var spans []span
	grants := map[string]int{}
	note := func(who string, from, asked time.Time) { // asked is when the last request began that gave it a lease
		until := time.Now()
		if end := asked.Add(ttl); end.Before(until) {
			until = end
		}
		if mu.Lock(); from.Before(until) {
			spans = append(spans, span{who, from, until})
			if grants[who[:3]]++; min(grants["new"], grants["old"]) >= 8 {
				cancel()
			}
		}
		mu.Unlock()
	}
	work := func() { time.Sleep(rand.N(20 * time.Millisecond)) }
	rest := func() { time.Sleep(rand.N(200 * time.Millisecond)) } // so that others get the lock
	var programs sync.WaitGroup
	for i := range 3 {
		l := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed)
		programs.Go(func() {
			var replace driver.Revision
			for n := 0; ctx.Err() == nil; n++ {
				who := fmt.Sprint("new", i, "-", n)
				req := request("n", who)
				req.TTL, req.Replace = ttl, replace
				asked := time.Now()
				lease, err := l.TryAcquire(t.Context(), req)
				from := time.Now()
				var held *driver.HeldError
				if replace = (driver.Revision{}); errors.As(err, &held) && n%3 == 0 {
					replace = held.Record.Revision // as if it had been unchanged for long
					time.Sleep(rand.N(ttl))
				}
				for again := rand.N(3); err == nil && again > 0; again-- {
					work()
					next := time.Now()
					lease, err = l.Renew(t.Context(), lease)
					if time.Since(asked) > ttl {
						break // another may have held the lock meanwhile
					}
					if err == nil {
						asked = next
					}
				}
				if err != nil {
					continue
				}
				work()
				note(who, from, asked)
				if rand.N(4) > 0 { // else it dies
					if err := l.Release(t.Context(), lease); err != nil {
						t.Error(err)
					}
				}
				rest()
			}
		})
		old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
		programs.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				who := fmt.Sprint("old", i, "-", n)
				asked := time.Now()
				got, err := old.take(t.Context(), who, ttl)
				if err != nil || !got {
					time.Sleep(rand.N(5 * time.Millisecond))
					continue
				}
				from := time.Now()
				for again := rand.N(3); got && again > 0; again-- {
					work()
					next := time.Now()
					if got, err = old.extend(t.Context(), who, ttl); err == nil && got {
						asked = next
					}
				}
				work()
				note(who, from, asked)
				if rand.N(4) > 0 {
					if _, err := old.release(t.Context(), who); err != nil {
						t.Error(err)
					}
				}
				rest()
			}
		})
	}
	programs.Wait()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	turns := 0
	for i, one := range spans {
		if i == 0 {
			continue
		}
		if before := spans[i-1]; one.from.Before(before.until) {
			t.Errorf("%s from %v until %v, and %s from %v", before.who, before.from, before.until, one.who, one.from)
		} else if before.who[:3] != one.who[:3] {
			turns++
		}
	}
	if grants["new"] == 0 || grants["old"] == 0 || turns == 0 {
		t.Errorf("grants %v, %d changes", grants, turns)
	}
	t.Logf("grants %v, %d changes between old and new programs", grants, turns)
}
