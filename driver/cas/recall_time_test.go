package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// expires returns when the lease of n ends, by the store's clock.
func expires(t *testing.T, store *memStore) time.Duration {
	t.Helper()
	at, err := cas.ExpiresAt("n", store.read(keyOf("n")).Data)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// What was read long ago does not say what the time is, and each Locker learns it for itself.
func TestTimeIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}}
		l := open(t, store, config)
		lease := mustAcquire(t, l, request("n", "first", time.Hour))
		renew := func(l *cas.Locker) string {
			return store.costs(t, func() (err error) { lease, err = l.Renew(ctx, lease); return err })
		}
		time.Sleep(5*time.Minute + time.Second)
		if got := renew(l); got != "Get Put " {
			t.Errorf("after 5 minutes: %s", got)
		}
		if got := renew(l); got != "Put " {
			t.Errorf("after a renewal: %s", got)
		}
		other := open(t, store, config)
		if got := renew(other); got != "Get Put " {
			t.Errorf("the first request of another Locker: %s", got)
		}
		if got := renew(other); got != "Put " {
			t.Errorf("its second request: %s", got)
		}
	})
}

// A store's clock that runs a little faster is no reason to read it.
func TestFastClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store, began := t.Context(), newStore(), time.Now()
		store.now = func() time.Time { e := time.Since(began); return began.Add(e + e/(cas.MarginPart+100)) }
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		lease := mustAcquire(t, l, request("n", "first", time.Hour))
		for range 3 {
			time.Sleep(4 * time.Minute)
			if got := store.costs(t, func() (err error) { lease, err = l.Renew(ctx, lease); return err }); got != "Put " {
				t.Errorf("a renewal: %s", got)
			}
		}
	})
}

// A renewal without a read, whose write returns no time, is repeated after a read: the clock may have stepped.
func TestRenewalWithoutTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		step := time.Duration(0)
		store.now = func() time.Time { return time.Now().Add(step) }
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		lease := mustAcquire(t, l, request("n", "first", time.Minute))
		step, store.mute = 45*time.Second, true
		for _, want := range []string{"Get Put Put ", "Get Put "} { // the second time it is known that writes return none
			if got := store.costs(t, func() (err error) { lease, err = l.Renew(ctx, lease); return err }); got != want {
				t.Errorf("a renewal: %s, want %s", got, want)
			}
			if left := expires(t, store) - time.Duration(store.now().UnixNano()); left < time.Minute-time.Second {
				t.Errorf("the lease lasts for %v", left)
			}
		}
	})
}
