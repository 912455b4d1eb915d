package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// A lock whose record was removed while it was held is granted with a greater token, in the same
// millisecond too.
func TestTokenRisesAfterRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		var last uint64
		for _, id := range []string{"a", "b", "c"} {
			lease, err := l.TryAcquire(t.Context(), driver.Request{Name: "n", ID: driver.NewLeaseID(id), TTL: time.Hour})
			if err != nil || lease.Token <= last {
				t.Fatalf("%s: token %d after %d, %v", id, lease.Token, last, err)
			}
			last = lease.Token
			store.Remove("n")
		}
	})
}
