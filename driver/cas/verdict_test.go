package cas_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// leaky makes a store that lets a second write with the same version win, if there is one, on about one version of n.
func leaky(store *memStore, seed uint64, n int) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 3))
	type leak struct{ before string }
	leaks := map[string]leak{}
	store.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
		if err := sleep(ctx, store.delay()); err != nil {
			return cas.Written{}, err
		}
		mu.Lock()
		defer mu.Unlock()
		if l, is := leaks[key]; is && l.before == version {
			delete(leaks, key)
			version = store.read(key).Version
		} else if delete(leaks, key); store.read(key).Version == version && random.IntN(n) == 0 {
			leaks[key] = leak{version}
		}
		return store.apply(key, data, version)
	}
}

// worker opens a store at some time, and uses a lock until it is stopped. It returns when it could last do so.
func worker(ctx context.Context, t *testing.T, store cas.Store, name string) (last time.Time) {
	l, err := cas.Open(ctx, store, with(cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ProbeRounds: 4}))
	if err != nil {
		if !strings.Contains(err.Error(), "does not keep the condition of writes") {
			t.Errorf("Open: %v", err)
		}
		return last
	}
	defer func() {
		if err := l.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	var lease driver.Lease
	for last = time.Now(); ctx.Err() == nil; {
		if lease.Name == "" {
			var got driver.Lease
			if got, err = l.TryAcquire(ctx, request("n", fmt.Sprint(name, time.Now().UnixNano()), 10*time.Second)); err == nil {
				lease = got
			}
		} else if lease, err = l.Renew(ctx, lease); err == nil && rand.IntN(4) == 0 {
			err = l.Release(ctx, lease)
			lease = driver.Lease{}
		}
		switch {
		case err == nil || errors.Is(err, driver.ErrHeld):
			last = time.Now()
		case errors.Is(err, driver.ErrLost):
			lease = driver.Lease{}
		}
		if sleep(ctx, time.Second) != nil {
			break
		}
	}
	return last
}

// A fleet never works for longer than its first minute on a store that lets two writes win in a tenth of the rounds.
func TestFleetOnAStoreThatLetsTwoWin(t *testing.T) {
	fleets := 100
	if testing.Short() {
		fleets = 20
	}
	for seed := range uint64(fleets) {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			store.delay = randomDelay(seed)
			leaky(store, seed, 10)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			random := rand.New(rand.NewPCG(seed, 4))
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 10 {
				after := time.Duration(random.Int64N(int64(20 * time.Second)))
				wg.Go(func() {
					if sleep(ctx, after) != nil {
						return
					}
					if last := worker(ctx, t, store, fmt.Sprint("worker ", i, " ")); last.Sub(began) > time.Minute {
						t.Errorf("seed %d: worker %d worked until %v after the first start", seed, i, last.Sub(began))
					}
				})
			}
			wg.Wait()
			if _, err := cas.Open(t.Context(), store, with(cas.Config{ProbeRounds: 4, Info: driver.Info{Expiry: driver.ByServer}})); !errors.Is(err,
				driver.ErrDenied) || !strings.Contains(err.Error(), "delete the value of its key ~probe") {
				t.Errorf("seed %d: a later Open: %v", seed, err)
			}
		})
	}
}

// An exact store is never refused, however many programs open it at a time, and however long they use it.
func TestFleetOnAnExactStore(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			store.delay = randomDelay(seed)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					if last := worker(ctx, t, store, fmt.Sprint("worker ", i, " ")); last.Sub(began) < 9*time.Minute {
						t.Errorf("seed %d: worker %d worked until %v", seed, i, last.Sub(began))
					}
				})
			}
			wg.Wait()
			store.mu.Lock()
			defer store.mu.Unlock()
			if puts := store.puts; puts > 200*20*10 { // a store that has passed is not raced any more
				t.Errorf("%d writes", puts)
			}
		})
	}
}

// A verdict outlives the program that has found it, says when and by which version it was found, and ends when a person deletes
// the value.
func TestVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		config := with(cas.Config{ProbeRounds: 4})
		store.put = store.putSlowly
		_, err := cas.Open(t.Context(), store, config)
		if !errors.Is(err, driver.ErrDenied) {
			t.Fatalf("Open: %v", err)
		}
		store.put = nil // repaired
		found := time.Now().UTC().Format("2006-01-02T15")
		time.Sleep(24 * time.Hour)
		_, err = cas.Open(t.Context(), store, config)
		for _, want := range []string{"8 of 8 writes with the same condition were done", "found on " + found, "by Holdfast (",
			"delete the value of its key ~probe"} {
			if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), want) {
				t.Errorf("Open: %v, want %q", err, want)
			}
		}
		checks := open(t, store, cas.Config{})
		f := findings(t, checks)["conditional writes"]
		if f.Level != driver.LevelWrong || !strings.Contains(f.Detail, found) || !strings.Contains(f.Remedy, "delete the value") {
			t.Errorf("Check: %+v", f)
		}
		store.overwrite(cas.ProbeKey, nil)
		if f := findings(t, checks)["conditional writes"]; f.Level != driver.LevelUnchecked {
			t.Errorf("Check: %+v", f)
		}
		l := open(t, store, config)
		began := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("Close took %v: %v", time.Since(began), err)
		}
		if f := findings(t, checks)["conditional writes"]; f.Level != driver.LevelOK {
			t.Errorf("Check: %+v", f)
		}
	})
}

// A Locker that races reads a verdict that another program has stored, and stops. It does not replace it.
func TestVerdictOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		config := with(cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ProbeRounds: 1, ProbeValue: "the Lease x"})
		l := open(t, store, config)
		lease := mustAcquire(t, l, request("n", "a", time.Minute))
		store.overwrite(cas.ProbeKey,
			[]byte(`{"rounds": 3, "verdict": {"saw": "two were done", "at": "2026-11-28T12:00:00Z", "byVersion": "v0.9"}}`))
		time.Sleep(5 * time.Second)
		if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "two were done") {
			t.Errorf("Renew: %v", err)
		}
		if _, err := l.TryAcquire(t.Context(), request("m", "a", time.Minute)); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("TryAcquire: %v", err)
		}
		for range 2 {
			if _, err := cas.Open(t.Context(), store, config); !errors.Is(err, driver.ErrDenied) ||
				!strings.Contains(err.Error(), "two were done; found on 2026-11-28T12:00:00Z by Holdfast v0.9: when the store was repaired, "+
					"or if this was wrong, delete the Lease x, and start the programs again") {
				t.Errorf("Open: %v", err)
			}
		}
	})
}

// Two writes that win because a person has deleted the value between them, or a fail-over has forgotten the first one, stop nobody
// on an exact store. Only the program that sees them does not open it. A store that goes on so is condemned.
func TestOneRaceThatProvesNothing(t *testing.T) {
	for what, c := range map[string]struct {
		failover driver.Failover
		deletes  bool
		often    bool
		stops    bool
	}{
		"deleted":             {failover: driver.GrantsSurvive, deletes: true},
		"forgotten":           {failover: driver.GrantsMayBeForgotten},
		"never forgotten":     {failover: driver.GrantsSurvive, stops: true},
		"forgotten each time": {failover: driver.GrantsMayBeForgotten, often: true, stops: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, store := t.Context(), newStore()
				config := with(cas.Config{Info: driver.Info{Expiry: driver.ByServer, Failover: c.failover}, ProbeRounds: 1})
				var armed, undone atomic.Bool
				var one sync.Mutex // no write sees another one before it is undone: else it is refused, and one win alone proves nothing
				store.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					one.Lock()
					defer one.Unlock()
					before := store.read(key)
					w, err := store.apply(key, data, version)
					if err == nil && key == cas.ProbeKey && armed.Load() && (!undone.Swap(true) || c.often) {
						store.mu.Lock()
						defer store.mu.Unlock()
						if store.values[key] = before; c.deletes {
							delete(store.values, key)
						}
					}
					return w, err
				}
				holder := open(t, store, config)
				lease := mustAcquire(t, holder, request("n", "a", time.Minute))
				if c.deletes {
					store.overwrite(cas.ProbeKey, nil)
				}
				armed.Store(true)
				config.ProbeRounds = 12
				config.CallLimit = 5 * time.Second
				for {
					l, err := cas.Open(ctx, store, config)
					if err == nil {
						t.Cleanup(func() { _ = l.Close(context.WithoutCancel(ctx)) })
					}
					if undone.Load() {
						if err == nil || errors.Is(err, driver.ErrDenied) != c.stops {
							t.Errorf("Open of the program that saw it: %v", err)
						}
						break
					}
				}
				time.Sleep(10 * time.Second)
				if _, err := holder.Renew(ctx, lease); (err != nil) != c.stops {
					t.Errorf("Renew: %v", err)
				}
				l, err := cas.Open(ctx, store, config)
				if errors.Is(err, driver.ErrDenied) != c.stops || !c.stops && err != nil {
					t.Errorf("a later Open: %v", err)
				}
				if err == nil {
					_ = l.Close(ctx)
				}
			})
		})
	}
}

func findings(t *testing.T, l *cas.Locker) map[string]driver.Finding {
	t.Helper()
	all := map[string]driver.Finding{}
	note := func(f driver.Finding) { all[f.Subject] = f }
	if err := l.Check(t.Context(), note); err != nil {
		t.Error(err)
	}
	return all
}

// The check of doctor makes many rounds: it finds a store that passes most of them.
func TestCheckWrites(t *testing.T) {
	missed := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			for _, exact := range []bool{true, false} {
				store := newStore()
				store.delay = randomDelay(seed)
				if !exact {
					leaky(store, seed, 10)
				}
				l, found := open(t, store, cas.Config{}), driver.Finding{}
				if err := driver.CheckWrites(t.Context(), unwrapped{l}, func(f driver.Finding) { found = f }); err != nil {
					t.Fatal(err)
				}
				switch {
				case exact && (found.Level != driver.LevelOK || !strings.Contains(found.Detail, "in 50 rounds")):
					t.Errorf("seed %d: %+v", seed, found)
				case !exact && (found.Level == driver.LevelOK || !strings.Contains(found.Remedy, "delete the value")):
					missed++ // or seen once, when the value was made
				}
			}
		})
	}
	if missed > 5 {
		t.Errorf("missed %d of 100", missed)
	}
}

// unwrapped is a wrapper as programs and tests have them.
type unwrapped struct{ driver.Locker }

func (u unwrapped) Unwrap() driver.Locker { return u.Locker }

// A holder that finds another one with its token stops, and so does every program: two writes on one version were done. Where a
// fail-over may forget grants, or the value was deleted or restored, that proves nothing.
func TestEqualToken(t *testing.T) {
	for what, c := range map[string]struct {
		failover driver.Failover
		forget   bool
		after    time.Duration // is when the value from before is restored
		closes   bool
		write    func(t *testing.T, l *cas.Locker, lease driver.Lease) error
		stops    bool
	}{
		"renew":            {failover: driver.GrantsSurvive, write: renews, stops: true},
		"release":          {failover: driver.GrantsSurvive, write: releases, stops: true},
		"may be forgotten": {failover: driver.GrantsMayBeForgotten, write: renews},
		"deleted":          {failover: driver.GrantsSurvive, forget: true, write: renews},
		"restored":         {failover: driver.GrantsSurvive, after: 20 * time.Second, write: renews},
		"closed":           {failover: driver.GrantsSurvive, write: renews, stops: true, closes: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, store := t.Context(), newStore()
				config := with(cas.Config{Info: driver.Info{Expiry: driver.ByServer, Failover: c.failover}})
				var lockers [3]*cas.Locker
				for i := range lockers {
					lockers[i] = open(t, store, config)
				}
				before := mustAcquire(t, lockers[0], request("n", "before", time.Minute))
				mustRelease(t, lockers[0], before)
				other := store.read(keyOf("n")).Data
				if c.after > 0 { // tokens ahead of the clock, which does not make them differ then
					other = regexp.MustCompile(`"token":\d+`).ReplaceAll(other, []byte(`"token":9000000000000000`))
					store.overwrite(keyOf("n"), other)
				}
				first := mustAcquire(t, lockers[0], request("n", "first", time.Minute))
				time.Sleep(c.after)
				store.mu.Lock() // the store forgets the write, and does one on the version before
				if store.set(keyOf("n"), other); c.forget {
					delete(store.values, keyOf("n"))
				}
				store.mu.Unlock()
				if c.forget { // the tokens of the value were two
					before = mustAcquire(t, lockers[1], request("n", "before 2", time.Minute))
					mustRelease(t, lockers[1], before)
				}
				second, err := lockers[1].TryAcquire(ctx, request("n", "second", time.Minute))
				if err != nil || second.Token != first.Token {
					t.Fatalf("the second has %v, and the first %v: %v", second, first, err)
				}
				another := mustAcquire(t, lockers[0], request("o", "another", time.Minute))
				err = c.write(t, lockers[0], first)
				if c.closes {
					if err := lockers[0].Close(ctx); err != nil {
						t.Error(err)
					}
					if _, err := cas.Open(ctx, store, config); err != nil {
						t.Errorf("reading only: %v", err)
					}
					config.ProbeRounds = 1
					if _, err := cas.Open(ctx, store, config); !errors.Is(err, driver.ErrDenied) {
						t.Errorf("a later Open: %v", err)
					}
					return
				}
				time.Sleep(10 * time.Second) // the verdict is stored
				if _, next := lockers[0].TryAcquire(ctx, request("m", "next", time.Minute)); errors.Is(next, driver.ErrDenied) != c.stops {
					t.Errorf("after %v the next acquire: %v", err, next)
				}
				renewed, lost := lockers[0].Renew(ctx, another)
				written := lockers[0].WriteData(ctx, renewed, nil, driver.DataRevision{Token: another.Token})
				if errors.Is(lost, driver.ErrLost) != c.stops || errors.Is(written, driver.ErrLost) != c.stops {
					t.Errorf("another lease: %v, its data: %v", lost, written)
				}
				if err := lockers[0].Release(ctx, another); err != nil {
					t.Errorf("release of another lease: %v", err)
				}
				config.ProbeRounds = 1
				l, err := cas.Open(ctx, store, config)
				if errors.Is(err, driver.ErrDenied) != c.stops || c.stops && !strings.Contains(err.Error(), `two holders of "n" have got the token`) {
					t.Errorf("a later Open: %v", err)
				}
				if err == nil {
					_ = l.Close(ctx)
				}
			})
		})
	}
}

func renews(t *testing.T, l *cas.Locker, lease driver.Lease) error {
	_, err := l.Renew(t.Context(), lease)
	if !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
	return err
}

func releases(t *testing.T, l *cas.Locker, lease driver.Lease) error {
	err := l.Release(t.Context(), lease)
	if err != nil {
		t.Errorf("Release: %v", err)
	}
	return err
}
