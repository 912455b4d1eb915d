package promises_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 3: tokens rise across release, expiry and, once the clock has passed the last one, removal.
func TestPromise03_FencingTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		last := uint64(0)
		take := func(how string) *holdfast.Hold {
			h := locktest.MustLock(t, c, "job")
			if h.Token() <= last {
				t.Errorf("%s: token %d is not above %d", how, h.Token(), last)
			}
			if got, ok := holdfast.TokenFromContext(h.Context()); !ok || got != h.Token() {
				t.Errorf("TokenFromContext: %d, %v; want %d", got, ok, h.Token())
			}
			if got, ok := holdfast.HoldFromContext(h.Context()); !ok || got != h {
				t.Errorf("HoldFromContext: %p, %v; want %p", got, ok, h)
			}
			last = h.Token()
			return h
		}
		for range 100 {
			_ = take("after a release").Release(t.Context())
		}
		// A process that died: its lease expires.
		dead := store.Locker()
		l, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), TTL: time.Second})
		if err != nil || l.Token <= last {
			t.Fatalf("lease %v, %v", l, err)
		}
		last = l.Token
		_ = take("after an expiry").Release(t.Context())
		store.Remove("job")
		time.Sleep(time.Second) // the server's clock passes the last token
		_ = take("after a removal of the record").Release(t.Context())
	})
}
