package promises_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 6: a stale release never frees the next holder, and is no error.
func TestPromise06_OnlyTheHolderReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			return map[string]locktest.Fault{locktest.OpRenew: {Refuse: locktest.ErrInjected}}[op]
		})
		old := locktest.MustLock(t, a, "job")
		<-old.Context().Done()
		b := locktest.NewClient(t, store.Locker())
		next := locktest.MustLock(t, b, "job")
		for range 3 {
			if err := old.Release(t.Context()); err != nil {
				t.Errorf("a stale release: %v", err)
			}
		}
		time.Sleep(time.Hour)
		if next.Err() != nil || !locktest.IsHeld(t, store, "job") {
			t.Errorf("a stale release freed the next holder: %v", next.Err())
		}
	})
}
