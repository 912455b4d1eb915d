package cas_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// replicated is a store whose writes are done, and not safe until its replicas are back.
func replicated() (store *memStore, safe *atomic.Bool) {
	store, safe = newStore(), new(atomic.Bool)
	store.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
		w, err := store.apply(key, data, version)
		if err == nil && !safe.Load() {
			return w, fmt.Errorf("%w: 0 of 1 replicas have confirmed it", cas.ErrNotSafe)
		}
		return w, err
	}
	return store, safe
}

// Promise 1: a grant that a fail-over may forget is undone, and is no hold. Nobody waits for its lease.
func TestGrantThatIsNotSafeIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, safe := replicated()
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer, Modes: driver.Modes{Shared: true}}})
		shared := reading("n", "reader", time.Minute)
		for _, req := range []driver.Request{request("n", "first", time.Minute), shared} {
			before := store.puts
			lease, err := l.TryAcquire(t.Context(), req)
			if err == nil || driver.OutcomeKnown(err) || driver.NotSent(err) || lease.Token != 0 {
				t.Errorf("granted %v: %v", lease, err)
			}
			if !errors.Is(err, cas.ErrNotSafe) || !strings.Contains(err.Error(), "0 of 1 replicas") || !strings.Contains(err.Error(), "undone") {
				t.Errorf("%v, want why, and what was done", err)
			}
			if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree || r.Token == 0 {
				t.Errorf("%v, %v, want a free lock that keeps its token", r, err)
			}
			if n := store.puts - before; n != 2 {
				t.Errorf("%d writes, want the grant and the release", n)
			}
		}
		forgotten, _ := l.Inspect(t.Context(), "n")
		safe.Store(true)
		if lease, err := l.TryAcquire(t.Context(), request("n", "second", time.Minute)); err != nil || lease.Token <= forgotten.Token {
			t.Errorf("%v after token %d, %v", lease, forgotten.Token, err)
		}
	})
}

// repeated are the calls whose writes are written again until they are safe.
var repeated = map[string]func(context.Context, *cas.Locker, driver.Lease) error{
	"renew": func(ctx context.Context, l *cas.Locker, lease driver.Lease) error {
		_, err := l.Renew(ctx, lease)
		return err
	},
	"write data": func(ctx context.Context, l *cas.Locker, lease driver.Lease) error {
		return l.WriteData(ctx, lease, []byte("data"), driver.DataRevision{Token: lease.Token})
	},
	"break": func(ctx context.Context, l *cas.Locker, lease driver.Lease) error {
		return l.Break(ctx, lease.Name, driver.BreakToken(lease.Token))
	},
	"break now": func(ctx context.Context, l *cas.Locker, lease driver.Lease) error {
		return l.BreakNow(ctx, lease.Name, driver.BreakToken(lease.Token))
	},
}

// Renewals, data and breaks that may be forgotten are written again until they are safe, and have not succeeded before.
func TestWritesThatAreNotSafeAreRepeated(t *testing.T) {
	for what, call := range repeated {
		synctest.Test(t, func(t *testing.T) {
			store, safe := replicated()
			safe.Store(true)
			l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
			try := func(back time.Duration) {
				lease, err := l.TryAcquire(t.Context(), request("n", fmt.Sprint(back), time.Minute))
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				safe.Store(false)
				timer := time.AfterFunc(back, func() { safe.Store(true) })
				defer timer.Stop()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began := time.Now()
				err = call(ctx, l, lease)
				if took := time.Since(began); back < 3*time.Second && (err != nil || took < back) {
					t.Errorf("%s, safe after %v: %v after %v", what, back, err, took)
				} else if back > 3*time.Second && (err == nil || driver.OutcomeKnown(err)) {
					t.Errorf("%s, never safe: %v", what, err)
				}
				safe.Store(true)
				if err := l.Release(t.Context(), lease); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			try(time.Second)
			try(time.Hour)
		})
	}
}

// What is found written, although no write was confirmed by the replicas, is written again until one is: data and breaks, as renewals
// are always. What ends by itself is not, and nothing is on a store that forgets nothing.
func TestWritesThatWereNeverConfirmedAreRepeated(t *testing.T) {
	const noAnswer, conflict = "no answer", "conflict"
	calls := maps.Clone(repeated)
	calls["release"] = func(ctx context.Context, l *cas.Locker, lease driver.Lease) error { return l.Release(ctx, lease) }
	calls["leave"] = func(ctx context.Context, l *cas.Locker, lease driver.Lease) error {
		return l.Leave(ctx, "waiter", []string{lease.Name})
	}
	for what, want := range map[string]struct{ forgets, conflict, survives int }{
		"renew": {3, 3, 2}, "write data": {3, 3, 1}, "break": {3, 3, 1}, "break now": {3, 3, 1}, "release": {1, 1, 1}, "leave": {1, 1, 1},
	} {
		for _, c := range []struct {
			how      string
			failover driver.Failover
			writes   int
		}{
			{noAnswer, driver.GrantsMayBeForgotten, want.forgets}, {conflict, driver.GrantsMayBeForgotten, want.conflict},
			{noAnswer, driver.GrantsSurvive, want.survives},
		} {
			t.Run(fmt.Sprint(what, ", ", c.how, ", ", c.failover), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					config := with(cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
					config.Info.Failover = c.failover
					l, err := cas.Open(t.Context(), store, config)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
					lease := mustAcquire(t, l, request("n", "first", time.Minute))
					waits := waiting("n", "w", time.Minute, "waiter")
					_, _ = l.TryAcquire(t.Context(), waits)
					lease.State = driver.LeaseState{} // the position has changed the value
					writes := 0
					store.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
						if writes++; writes == 2 && c.how == conflict {
							store.overwrite(key, store.values[key].Data) // another writes
						}
						w, err := store.apply(key, data, version)
						switch {
						case err == nil && writes == 1 && c.how == noAnswer:
							return cas.Written{}, errNoAnswer
						case err == nil && writes < 3 && c.failover == driver.GrantsMayBeForgotten:
							return w, cas.ErrNotSafe
						}
						return w, err
					}
					if err := calls[what](t.Context(), l, lease); err != nil || writes != c.writes {
						t.Errorf("%v after %d writes, want %d", err, writes, c.writes)
					}
				})
			})
		}
	}
}

// A reader that is lost is reported at once: there is nothing of its renewal to write again.
func TestLostReaderWritesNothing(t *testing.T) {
	store := newStore()
	config := with(cas.Config{Info: driver.Info{Expiry: driver.ByServer, Modes: driver.Modes{Shared: true}}})
	config.Info.Failover = driver.GrantsMayBeForgotten
	l, err := cas.Open(t.Context(), store, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	var before cas.Value
	var lease driver.Lease
	for _, id := range []string{"another", "reader"} {
		before = store.read(keyOf("n"))
		lease = mustAcquire(t, l, reading("n", id, time.Minute))
	}
	writes := 0
	store.put = func(_ context.Context, key string, _ []byte, _ string) (cas.Written, error) {
		writes++
		store.mu.Lock()
		defer store.mu.Unlock()
		store.set(key, before.Data)
		return cas.Written{}, errNoAnswer
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) || writes != 1 {
		t.Errorf("%v after %d writes", err, writes)
	}
}

// A break may be forgotten, and the key is deleted before it is written again. No record is made of nothing: it would count as damaged.
func TestNothingIsWrittenAgainForAKeyThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, safe := replicated()
		safe.Store(true)
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		lease := mustAcquire(t, l, request("n", "first", time.Minute))
		safe.Store(false)
		timer := time.AfterFunc(time.Millisecond, func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			clear(store.values)
			safe.Store(true)
		})
		defer timer.Stop()
		if err := l.Break(t.Context(), "n", driver.BreakToken(lease.Token)); err != nil {
			t.Log(err)
		}
		if _, err := l.TryAcquire(t.Context(), request("n", "second", time.Minute)); err != nil {
			t.Errorf("after the key was deleted: %v", err)
		}
	})
}

// What ends by itself counts as done: nobody waits for replicas that are gone.
func TestReleaseThatIsNotSafeIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, safe := replicated()
		safe.Store(true)
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
		lease := mustAcquire(t, l, request("n", "first", time.Minute))
		safe.Store(false)
		waits := waiting("n", "w", time.Minute, "waiter")
		var held *driver.HeldError
		if _, err := l.TryAcquire(t.Context(), waits); !errors.As(err, &held) || held.Record.Position != 1 {
			t.Errorf("%v, want a refusal with a position", err)
		}
		before := store.puts
		err := errors.Join(l.Leave(t.Context(), "waiter", []string{"n"}), l.Release(t.Context(), lease))
		if n := store.puts - before; err != nil || n > 3 { // one is refused: the value has the position
			t.Errorf("%v after %d writes", err, n)
		}
	})
}

// Writes that are not safe are done all the same: two of them with one condition are proof against the store.
func TestRaceOfWritesThatAreNotSafe(t *testing.T) {
	config := with(cas.Config{ProbeRounds: 4, Info: driver.Info{Expiry: driver.ByServer}})
	store, _ := replicated()
	l, err := cas.Open(t.Context(), store, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	store, _ = replicated()
	store.put = func(_ context.Context, key string, data []byte, _ string) (cas.Written, error) {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.written(store.set(key, data)), cas.ErrNotSafe
	}
	if _, err := cas.Open(t.Context(), store, config); err == nil || !strings.Contains(err.Error(), "does not keep the condition") {
		t.Errorf("opened a store that ignores conditions: %v", err)
	}
	store, _ = replicated()
	exact := store.put
	store.set(cas.ProbeKey, []byte("{}"))
	store.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
		if version != "" {
			return exact(ctx, key, data, version)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.written(store.set(key, data)), cas.ErrNotSafe
	}
	if _, err := cas.Open(t.Context(), store, config); err == nil || !strings.Contains(err.Error(), "does not keep the condition") {
		t.Errorf("opened a store that replaces values: %v", err)
	}
}
