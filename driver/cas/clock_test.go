package cas_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// A lease lasts for its TTL, also if the clock advances in steps and was read just before one.
func TestClockInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		store.now = func() time.Time { return time.Now().Truncate(time.Second) }
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ClockStep: time.Second})
		time.Sleep(900 * time.Millisecond)
		lease := mustAcquire(t, l, request("n", "first", 5*time.Second))
		for range 2 {
			time.Sleep(4500 * time.Millisecond)
			if r, err := l.Inspect(ctx, "n"); err != nil || r.State != driver.StateHeld || r.Remaining > 5*time.Second {
				t.Errorf("4.5 s of 5 s after the grant: %+v, %v", r, err)
			}
			if _, err := l.TryAcquire(ctx, request("n", "second", 5*time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("4.5 s of 5 s after the grant or renewal: %v", err)
			}
			mustRenew(t, l, lease)
		}
		time.Sleep(7 * time.Second)
		if _, err := l.TryAcquire(ctx, request("n", "second", 5*time.Second)); err != nil {
			t.Errorf("after the lease: %v", err)
		}
	})
}

// The end of a lease in the history does not depend on how long it took to read it.
func TestEndBySlowReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByObservation, History: 3}})
		began := time.Now()
		mustAcquire(t, l, request("n", "first", 4*time.Second))
		time.Sleep(6 * time.Second)
		store.delay = func() time.Duration { return 900 * time.Millisecond }
		ends := func(when string) {
			t.Helper()
			r, err := l.Inspect(ctx, "n")
			if err != nil || len(r.History) == 0 || r.History[len(r.History)-1].Until.Sub(began).Round(time.Second/2) != 4*time.Second {
				t.Errorf("%s: %+v, %v; began at %v", when, r.History, err, began)
			}
		}
		ends("free")
		mustAcquire(t, l, request("n", "second", 4*time.Second))
		ends("held by another")
	})
}

// While a watch fails, waiters poll; they are notified when it is in effect again. It is not opened faster than
// the backoff.
func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, opened, fail := newStore(), 0, make(chan struct{})
		watch := func(ctx context.Context, key string, changed func(cas.Value)) error {
			if opened++; opened > 1 && opened < 10 {
				return errNoAnswer
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-fail:
					cancel()
				case <-ctx.Done():
				}
			}()
			return store.watch(ctx, key, changed)
		}
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: watch})
		wakeups := make(chan driver.WakeupKind, 100)
		stop := l.Wake("n", "w", func(up driver.Wakeup) { wakeups <- up.Kind })
		defer stop()
		if got := <-wakeups; got != driver.WakingBegan {
			t.Errorf("at first: %v", got)
		}
		began := time.Now()
		fail <- struct{}{}
		if got := <-wakeups; got != driver.WakingEnded {
			t.Errorf("after the watch has failed: %v", got)
		}
		if got := <-wakeups; got != driver.WakingBegan {
			t.Errorf("in effect again: %v", got)
		}
		if took := time.Since(began); took < 10*time.Second || opened != 10 {
			t.Errorf("opened %d times within %v", opened, took)
		}
	})
}

// A call that the store does not answer ends in time, and Close does not wait for it for long.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		l, err := cas.Open(t.Context(), store, with(cas.Config{CallLimit: time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		resume, _ := store.stall(t.Context(), "n")
		began := time.Now()
		if _, err := l.TryAcquire(t.Context(), request("n", "a", time.Minute)); err == nil || driver.OutcomeKnown(err) ||
			time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		done := make(chan error)
		go func() { _, err := l.Inspect(t.Context(), "n"); done <- err }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		_ = l.Close(ended)
		if time.Since(began) > time.Second {
			t.Errorf("Close took %v", time.Since(began))
		}
		if err := <-done; err == nil {
			t.Error("no error")
		}
		resume()
	})
}

// By observation: a fail-over forgets a renewal that a waiter has seen. The next one has its number and is another, so the lease
// of a holder that is alive has not ended.
func TestObservationOfAForgottenRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 5 * time.Second
		ctx, store := t.Context(), newStore()
		config := cas.Config{Info: driver.Info{Expiry: driver.ByObservation}}
		holder, waiter := open(t, store, config), open(t, store, config)
		lease := mustAcquire(t, holder, request("n", "a", ttl))
		renew := func() {
			t.Helper()
			lease = mustRenew(t, holder, lease)
		}
		renew()
		kept := store.read(keyOf("n")).Data
		renew() // number 2, which will be forgotten
		if _, err := waiter.TryAcquire(ctx, request("n", "b", ttl)); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		store.overwrite(keyOf("n"), kept) // the fail-over
		time.Sleep(4 * time.Second)
		renew() // number 2 again
		time.Sleep(1200 * time.Millisecond)
		if got, err := waiter.TryAcquire(ctx, request("n", "b", ttl)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("taken from a holder that has renewed 1.2 s ago: token %d, %v", got.Token, err)
		}
	})
}
