package cas_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func keyOf(name string) string { return lockrecord.Key(name) }

func conformance(store *memStore, config cas.Config) lockertest.Config {
	config.CallLimit = 3 * time.Second
	return lockertest.Config{
		New:    func(t *testing.T) driver.Locker { return open(t, store, config) },
		Forget: store.forget,
		Stall:  store.stall,
		Deny:   store.deny,
		Damage: store.damage,
		// A store of this kind is one map. What a real one forgets is up to it.
		Without: []string{"FailOver"},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("by the server", func(t *testing.T) {
		t.Parallel()
		store, clock := newStore(), locktest.NewClock()
		store.now = clock.Now
		cfg := conformance(store, cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer,
			History: driver.DefaultHistory}, Watch: store.watch, ProbeRounds: 4})
		cfg.Advance = clock.Advance
		lockertest.Run(t, cfg)
	})
	t.Run("by observation", func(t *testing.T) {
		t.Parallel()
		store, clock := newStore(), locktest.NewClock()
		store.now = nil
		cfg := conformance(store, cas.Config{Info: driver.Info{History: driver.DefaultHistory}, Watch: store.watch})
		cfg.Advance = clock.Advance
		cfg.New = func(t *testing.T) driver.Locker {
			l := open(t, &batchStore{memStore: store}, cas.Config{Info: driver.Info{History: driver.DefaultHistory}, Watch: store.watch,
				CallLimit: 3 * time.Second})
			l.SetClock(clock.Now)
			return l
		}
		lockertest.Run(t, cfg)
	})
	t.Run("by the server, with lost answers", func(t *testing.T) {
		t.Parallel()
		store, clock, config := newStore(), locktest.NewClock(), cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true},
			Expiry: driver.ByServer, History: driver.DefaultHistory}}
		store.now = clock.Now
		config.Watch = store.watch
		cfg := conformance(store, config)
		cfg.Advance = clock.Advance
		var opened atomic.Uint64
		cfg.New = func(t *testing.T) driver.Locker {
			return open(t, castest.Faulty(t, store, castest.LostAnswers(opened.Add(1))), config)
		}
		lockertest.Run(t, cfg)
	})
	t.Run("without a watch, a clock in steps, in real time", func(t *testing.T) {
		t.Parallel()
		const step = 100 * time.Millisecond
		store := newStore()
		store.now = func() time.Time { return time.Now().Truncate(step) }
		cfg := conformance(store, cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer, History: 2},
			ClockStep: step})
		cfg.TTL, cfg.ClockStep = 400*time.Millisecond, step
		lockertest.Run(t, cfg)
	})
}

// Outside a test the suite also waits for the steps of a store's clock.
func TestExamineWithAClockInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 2 * time.Second
		store := newStore()
		store.now = func() time.Time { return time.Now().Truncate(step) }
		config := cas.Config{ClockStep: step,
			Info: driver.Info{Backend: "test", Expiry: driver.ByServer, Failover: driver.GrantsSurvive, History: 2}}
		err := lockertest.Examine(t.Context(), func(ctx context.Context) (driver.Locker, error) { return cas.Open(ctx, store, config) },
			lockertest.Config{TTL: 5 * time.Second, ClockStep: step}, func(o lockertest.Outcome) {
				if len(o.Failures) > 0 {
					t.Errorf("%s: %q", o.Clause, o.Failures)
				}
			})
		if err != nil {
			t.Error(err)
		}
	})
}
