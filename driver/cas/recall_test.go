package cas_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// costs counts the requests of a call.
func (s *memStore) costs(t *testing.T, call func() error) string {
	t.Helper()
	s.mu.Lock()
	gets, puts := s.gets, s.puts
	s.mu.Unlock()
	if err := call(); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Repeat("Get ", s.gets-gets) + strings.Repeat("Put ", s.puts-puts)
}

// With the State of its latest request, a lease is renewed, written and released by one Put. A State
// that is out of date costs one Put more than none, at most.
func TestRequestsOfALease(t *testing.T) {
	const read, put = "Get Put ", "Put "
	for name, c := range map[string]struct {
		expiry  driver.Expiry
		mute    bool
		with    string // the requests of a call with the present State
		without string // with an empty one
		written string // with the one from before the data were written
		old     string // with one from before a renewal
	}{
		"by the server":                 {driver.ByServer, false, put, read, "Get Put Put ", "Get Put Put "},
		"by observation":                {driver.ByObservation, false, put, read, "Get Put Put ", read}, // it shows another renewal
		"a clock that no write reports": {driver.ByServer, true, read, read, read, read},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, store := t.Context(), newStore()
				store.mute = c.mute
				l := open(t, store, cas.Config{Info: driver.Info{Expiry: c.expiry, Modes: driver.Modes{Shared: c.expiry == driver.ByServer}}})
				var lease driver.Lease
				expect := func(what, want string, call func() error) {
					t.Helper()
					time.Sleep(10 * time.Second)
					if got := store.costs(t, call); got != want {
						t.Errorf("%s: %s, want %s", what, got, want)
					}
				}
				renew := func() (err error) { lease, err = l.Renew(ctx, lease); return err }
				expect("acquire", read, func() (err error) {
					lease, err = l.TryAcquire(ctx, request("n", "first", time.Minute))
					return err
				})
				for range 3 {
					expect("renew", c.with, renew)
				}
				expect("write", c.with, func() error { return l.WriteData(ctx, lease, []byte("x"), driver.DataRevision{Token: lease.Token}) })
				expect("write again", read, func() error {
					return l.WriteData(ctx, lease, []byte("xx"), driver.DataRevision{Token: lease.Token, Writes: 1})
				})
				expect("renew after the writes", c.written, renew)
				none := lease
				none.State = driver.LeaseState{}
				expect("renew without a State", read, func() error { return errOf(l.Renew(ctx, none)) })
				present := lease.State
				expect("renew with an old State", c.old, renew)
				lease.State = present
				expect("renew with an older State", c.old, renew)
				expect("release", c.with, func() error { return l.Release(ctx, lease) })
				if r, err := l.Inspect(ctx, "n"); err != nil || r.State != driver.StateFree || string(r.Data) != "xx" {
					t.Errorf("%+v, %v", r, err)
				}
				if c.expiry == driver.ByServer { // that of a single reader, too
					lease = mustAcquire(t, l, reading("n", "reader", time.Minute))
					for range 3 {
						expect("renew a reader", c.with, renew)
					}
				}
			})
		})
	}
}

// Promises 1 and 6: what a break or another's grant has changed is not written with the State of before.
func TestStateOfALostLease(t *testing.T) {
	for _, expiry := range []driver.Expiry{driver.ByServer, driver.ByObservation} {
		for what, lose := range map[string]func(l *cas.Locker, lease driver.Lease) error{
			"broken": func(l *cas.Locker, lease driver.Lease) error {
				return l.Break(context.Background(), "n", driver.BreakToken(lease.Token))
			},
			"freed": func(l *cas.Locker, lease driver.Lease) error {
				return l.BreakNow(context.Background(), "n", driver.BreakAnybody())
			},
			"released and granted": func(l *cas.Locker, lease driver.Lease) error {
				_, err := l.TryAcquire(context.Background(), request("n", "next", time.Minute))
				return errors.Join(l.Release(context.Background(), lease), errOf(l.TryAcquire(context.Background(), request("n", "next", time.Minute))),
					notHeld(err))
			},
		} {
			t.Run(fmt.Sprint(expiry, " ", what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, store := t.Context(), newStore()
					mine, other := open(t, store, cas.Config{Info: driver.Info{Expiry: expiry}}),
						open(t, store, cas.Config{Info: driver.Info{Expiry: expiry}})
					lease := mustAcquire(t, mine, request("n", "first", time.Minute))
					if err := lose(other, lease); err != nil {
						t.Fatal(err)
					}
					before, _ := other.Inspect(ctx, "n")
					if _, err := mine.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
						t.Errorf("renewal: %v", err)
					}
					if what != "broken" {
						at := driver.DataRevision{Token: lease.Token}
						if err := mine.WriteData(ctx, lease, []byte("mine"), at); !errors.Is(err, driver.ErrLost) {
							t.Errorf("write: %v", err)
						}
						if err := mine.Release(ctx, lease); err != nil {
							t.Errorf("release: %v", err)
						}
					}
					if r, err := other.Inspect(ctx, "n"); err != nil || what != "freed" && (r.State != before.State || r.Token != before.Token) ||
						len(r.Data) > 0 {
						t.Errorf("%+v became %+v, %v", before, r, err)
					}
				})
			})
		}
	}
}

// notHeld is an error unless err says that the lock is held.
func notHeld(err error) error {
	if errors.Is(err, driver.ErrHeld) {
		return nil
	}
	return fmt.Errorf("the lock was not held: %w", err)
}

// Promise 2: a lease that is renewed without a read lasts its TTL by the store's clock, whatever that has done meanwhile. A
// step that is shorter than the call and the grain of the clock cannot be seen: by so much it may end early, and only then.
func TestRenewalWithoutAReadLasts(t *testing.T) {
	const ttl, called = 20 * time.Second, 40 * time.Millisecond
	for _, step := range []time.Duration{0, 30 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 24 * time.Hour,
		-time.Second, -10 * time.Second, -24 * time.Hour} {
		for _, grain := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprint(step, " in steps of ", grain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					stepped := time.Duration(0)
					now := func() time.Time { return time.Now().Add(stepped) }
					store.now = func() time.Time {
						if grain > 0 {
							return now().Truncate(grain)
						}
						return now()
					}
					l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ClockStep: grain})
					store.delay = func() time.Duration { return called / 2 }
					lease := mustAcquire(t, l, request("n", "first", ttl))
					for range 3 {
						time.Sleep(7300 * time.Millisecond)
						sent := now().Add(step) // the step happens just before the request arrives
						stepped += step
						lease = mustRenew(t, l, lease)
						unseen := time.Duration(0)
						if step > 0 && step <= grain+called {
							unseen = step
						}
						if early := sent.Add(ttl).Sub(time.Unix(0, int64(expires(t, store)))); early > unseen {
							t.Errorf("the lease ends %v early", early)
						}
					}
				})
			})
		}
	}
}

// A State that is no State of this lease is as good as none.
func TestForeignState(t *testing.T) {
	l := open(t, newStore(), cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
	lease, other := mustAcquire(t, l, request("n", "first", time.Minute)), mustAcquire(t, l, request("m", "first", time.Minute))
	whole := lease.State.Content()
	for _, state := range []string{other.State.Content(), "x", ":", "0:", "-1:x", "1:", "9:v1", "99999999999999999999:v", "2:v1{}",
		whole[:len(whole)-1], whole + "}", "2" + whole, strings.Replace(whole, `"name":"n"`, `"name":"m"`, 1)} {
		lease.State = driver.NewLeaseState(state)
		mustRenew(t, l, lease)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token {
		t.Errorf("%+v, %v", r, err)
	}
}

// A record that is out of reach makes no call take longer than without a State.
func TestStaleStateAndNoRightToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		lease := mustAcquire(t, l, request("n", "first", time.Minute))
		mustRenew(t, l, lease)
		store.get = func(context.Context, string) (cas.Value, error) {
			return cas.Value{}, driver.Denied(errors.New("no right"))
		}
		began := time.Now()
		if _, err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrDenied) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// The store's client library repeats a write that was done, so the answer is a conflict, and a renewal has changed the
// record in between. WriteData finds that its data are there, and returns no error.
func TestRepeatedWriteBesideARenewal(t *testing.T) {
	store := newStore()
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
	lease := mustAcquire(t, l, request("n", "a", time.Minute))
	store.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
		store.put = nil
		if _, err := store.apply(key, data, version); err != nil {
			t.Error(err)
		}
		mustRenew(t, l, lease)
		return cas.Written{}, cas.ErrConflict
	}
	if err := l.WriteData(t.Context(), lease, []byte("one"), driver.DataRevision{Token: lease.Token}); err != nil {
		t.Error(err)
	}
	if data, at, err := l.ReadData(t.Context(), "n"); err != nil || string(data) != "one" || at.Writes != 1 {
		t.Errorf("the data are %q of revision %+v, error %v", data, at, err)
	}
}

// A waiter that asks again with the same position writes nothing, so the holder's renewal stays one request.
func TestPollOfAWaiterWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
		lease := mustAcquire(t, l, request("n", "holder", time.Minute))
		waits := waiting("n", "waiter", time.Minute, "waiter")
		poll := func() error { return notHeld(errOf(l.TryAcquire(ctx, waits))) }
		for i, want := range []string{"Get Put ", "Get ", "Get "} {
			if got := store.costs(t, poll); got != want {
				t.Errorf("request %d of the waiter: %s, want %s", i+1, got, want)
			}
			time.Sleep(time.Second)
		}
		lease = mustRenew(t, l, lease) // its State is from before the waiter
		_ = store.costs(t, poll)
		if got := store.costs(t, func() error { return errOf(l.Renew(ctx, lease)) }); got != "Put " {
			t.Errorf("a renewal after a poll: %s", got)
		}
	})
}

// On a store that is faster than this process, a renewal is one Put, too. A step of the machine's clock may cost more.
func TestRenewalOnAFastStore(t *testing.T) {
	const renewals = 500
	store := newStore() // its clock is the machine's
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
	lease := mustAcquire(t, l, request("n", "id", time.Hour))
	sent := store.costs(t, func() error {
		for range renewals {
			lease = mustRenew(t, l, lease)
		}
		return nil
	})
	if n := strings.Count(sent, " "); n > 2*renewals {
		t.Errorf("%d renewals took %d requests", renewals, n)
	}
}

// By observation, the present lease is seen before a call recalls an old one, which has long ended, or by another goroutine at any moment
// of that. The takeover comes a TTL after that sighting: what the old State says was not seen now.
func TestRecallBesideASightingDelaysNoTakeover(t *testing.T) {
	for reading := range 5 {
		t.Run(fmt.Sprint("at reading ", reading, " of the clock"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = 10 * time.Second
				ctx, store := t.Context(), newStore()
				store.now = nil
				l, dead := open(t, store, cas.Config{}), open(t, store, cas.Config{})
				readings := 0
				beside := func() {}
				l.SetClock(func() time.Time {
					if readings++; readings == reading {
						beside()
					}
					return time.Now()
				})
				old := mustAcquire(t, l, request("n", "old", ttl))
				bare := old
				bare.State = driver.LeaseState{}
				if err := errors.Join(dead.Release(ctx, bare), errOf(dead.TryAcquire(ctx, request("n", "dead", ttl)))); err != nil {
					t.Fatal(err)
				}
				next := func() error { return errOf(l.TryAcquire(ctx, request("n", "next", ttl))) }
				seen := false
				beside = func() {
					seen = true
					if err := notHeld(next()); err != nil {
						t.Error(err)
					}
				}
				store.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
					time.Sleep(ttl / 2)
					return store.apply(key, data, version)
				}
				began := time.Now()
				if reading == 0 {
					beside()
					time.Sleep(ttl / 4)
				}
				readings = 0
				if _, err := l.Renew(ctx, old); !errors.Is(err, driver.ErrLost) || !seen {
					t.Errorf("renewal of the old lease: %v; the present one was seen: %t", err, seen)
				}
				store.put = nil
				time.Sleep(time.Until(began.Add(ttl + ttl/cas.MarginPart)))
				if err := next(); err != nil {
					t.Errorf("a TTL after the dead holder was seen first: %v", err)
				}
			})
		})
	}
}
