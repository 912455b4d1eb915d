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

// What was read long ago does not say what the time is, and each Locker learns it for itself. A store's clock that runs a little faster is
// no reason to read it.
func TestTimeIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, began, faster := newStore(), time.Now(), 0
		store.now = func() time.Time {
			e := time.Since(began)
			return began.Add(e + time.Duration(faster)*e/(cas.MarginPart+100))
		}
		config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}}
		l, other := open(t, store, config), open(t, store, config)
		lease := mustAcquire(t, l, request("n", "first", time.Hour))
		for _, c := range []struct {
			what   string
			by     *cas.Locker
			pause  time.Duration
			faster int
			want   string
		}{
			{"after 5 minutes", l, 5*time.Minute + time.Second, 0, "Get Put "}, {"after a renewal", l, 0, 0, "Put "},
			{"the first request of another Locker", other, 0, 0, "Get Put "}, {"its second request", other, 0, 0, "Put "},
			{"a faster clock", other, 4 * time.Minute, 1, "Put "}, {"still faster", other, 4 * time.Minute, 1, "Put "},
			{"and again", other, 4 * time.Minute, 1, "Put "},
		} {
			if c.faster != faster {
				began, faster = time.Now(), c.faster
			}
			time.Sleep(c.pause)
			if got := store.costs(t, func() (err error) { lease, err = c.by.Renew(t.Context(), lease); return err }); got != c.want {
				t.Errorf("%s: %s, want %s", c.what, got, c.want)
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
