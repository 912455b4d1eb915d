package cas_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// An order that no token can hold is refused before anything is written: a value with the last token blocks its lock forever.
func TestHighestOrder(t *testing.T) {
	for _, c := range []struct {
		order   uint64
		refused bool
	}{{1, false}, {cas.MaxOrder, false}, {cas.MaxOrder + 1, true}, {1<<63 - 1, true}, {1 << 63, true}, {1<<64 - 1, true}} {
		store := newStore()
		l := open(t, altered{store, func(v *cas.Value) {
			if v.Version == "" { // the writes have an order, and there is no value
				v.Order = c.order
			}
		}}, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		lease, err := l.TryAcquire(t.Context(), request("n", "a", time.Minute))
		if c.refused {
			if err == nil || !strings.Contains(err.Error(), "at most") || store.read(keyOf("n")).Version != "" {
				t.Errorf("order %d: granted %v, %v", c.order, lease, err)
			}
			continue
		}
		if err != nil || lease.Token <= c.order {
			t.Fatalf("order %d: %v, %v", c.order, lease, err)
		}
		if _, err := l.Renew(t.Context(), lease); err != nil {
			t.Errorf("order %d: %v", c.order, err)
		}
		// Once the store has deleted nothing, later tokens are by one greater, whatever the order.
		mustRelease(t, l, lease)
		next, err := l.TryAcquire(t.Context(), request("n", "b", time.Minute))
		if err != nil || next.Token <= lease.Token || next.Token > lease.Token+uint64(time.Minute.Milliseconds()) {
			t.Errorf("order %d: the token %d after %d, %v", c.order, next.Token, lease.Token, err)
		}
	}
}
