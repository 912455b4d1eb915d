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

// Renewals, data and breaks that may be forgotten are written again until they are safe, and have not succeeded before. So is what is found
// written, although no write was confirmed by the replicas. What ends by itself is not: nobody waits for replicas that are gone. Nothing is
// on a store that forgets nothing, nor for a key that is gone: a record made of nothing would count as damaged.
func TestWritesThatWereNeverConfirmedAreRepeated(t *testing.T) {
	const noAnswer, conflict, later, never, deleted = "no answer", "conflict", "safe a second later", "never safe", "deleted"
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
			writes   int // 0: any number
		}{
			{noAnswer, driver.GrantsMayBeForgotten, want.forgets}, {conflict, driver.GrantsMayBeForgotten, want.conflict},
			{noAnswer, driver.GrantsSurvive, want.survives}, {later, driver.GrantsSurvive, 0}, {never, driver.GrantsSurvive, 0},
			{deleted, driver.GrantsSurvive, 1},
		} {
			t.Run(fmt.Sprint(what, ", ", c.how, ", ", c.failover), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer, Failover: c.failover}, Watch: store.watch})
					lease := mustAcquire(t, l, request("n", "first", time.Minute))
					writes, began := 0, time.Now()
					store.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
						if writes++; writes == 2 && c.how == conflict {
							store.overwrite(key, store.values[key].Data) // another writes
						}
						w, err := store.apply(key, data, version)
						switch {
						case err != nil:
						case writes == 1 && c.how == noAnswer:
							return cas.Written{}, errNoAnswer
						case c.how == deleted && writes == 1:
							store.overwrite(key, nil)
							return w, cas.ErrNotSafe
						case c.how == later && time.Since(began) < time.Second, c.how == never,
							writes < 3 && c.failover == driver.GrantsMayBeForgotten:
							return w, cas.ErrNotSafe
						}
						return w, err
					}
					if put := store.put; what == "leave" || c.how == noAnswer || c.how == conflict {
						if c.how != never {
							store.put = nil
						}
						var held *driver.HeldError
						_, err := l.TryAcquire(t.Context(), waiting("n", "w", time.Minute, "waiter"))
						if !errors.As(err, &held) || held.Record.Position != 1 {
							t.Errorf("%v, want a refusal with a position", err)
						}
						lease.State = driver.LeaseState{} // the position has changed the value
						store.put, writes = put, 0
					}
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					err := calls[what](ctx, l, lease)
					repeats, took := repeated[what] != nil, time.Since(began)
					switch {
					case c.how == deleted: // whatever the call returns
						mustAcquire(t, l, request("n", "second", time.Minute))
					case c.how == never && repeats:
						if err == nil || driver.OutcomeKnown(err) {
							t.Errorf("never safe: %v", err)
						}
					case err != nil || c.writes > 0 && writes != c.writes || !repeats && writes != 1 || repeats && c.how == later && took < time.Second:
						t.Errorf("%v after %d writes and %v, want %d", err, writes, took, c.writes)
					}
				})
			})
		}
	}
}

// A reader that is lost is reported at once: there is nothing of its renewal to write again.
func TestLostReaderWritesNothing(t *testing.T) {
	store := newStore()
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer, Modes: driver.Modes{Shared: true},
		Failover: driver.GrantsMayBeForgotten}})
	mustAcquire(t, l, reading("n", "another", time.Minute))
	before := store.read(keyOf("n"))
	lease := mustAcquire(t, l, reading("n", "reader", time.Minute))
	writes := 0
	store.put = func(_ context.Context, key string, _ []byte, _ string) (cas.Written, error) {
		writes++
		store.overwrite(key, before.Data)
		return cas.Written{}, errNoAnswer
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) || writes != 1 {
		t.Errorf("%v after %d writes", err, writes)
	}
}
