package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The locks are released in one request where the backend can, and otherwise at the same time. A failed request is
// repeated for those that failed.
func TestSeveralNamesAreReleasedTogether(t *testing.T) {
	for what, onBatch := range map[string]func(n int, leases []driver.Lease) []error{
		"the batch works": nil,
		"the batch fails once": func(n int, leases []driver.Lease) []error {
			if n == 1 {
				return make([]error, 1) // of three
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &releaseLog{Locker: memory.New(), onBatch: onBatch}
			m := mustLockAll(t, locktest.NewClient(t, l), "a", "b", "c")
			if err := m.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := m.Release(t.Context()); err != nil {
				t.Errorf("%s, the second call: %v", what, err)
			}
			singles := 0
			if onBatch != nil {
				singles = 3 // retries go by themselves
			}
			if !slices.Equal(l.batches, []int{3}) || l.singles != singles || !errors.Is(m.Err(), holdfast.ErrReleased) {
				t.Errorf("%s: batches of %v, %d singles, %v", what, l.batches, l.singles, m.Err())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a Faulty has no batches
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), locktest.Each(locktest.OpRelease, locktest.Fault{Delay: time.Second}))
		m := mustLockAll(t, locktest.NewClient(t, f), "a", "b", "c")
		start := time.Now()
		if err := m.Release(t.Context()); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// The error of a release names the locks that may stay held. A nil or ended context still sends one request for each.
func TestFailedReleaseOfSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), locktest.Named(locktest.OpRelease, "b", locktest.Fault{Refuse: locktest.ErrInjected}))
		m := mustLockAll(t, locktest.NewClient(t, f), "a", "b", "c")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err := m.Release(ended)
		if !errors.Is(err, locktest.ErrInjected) || !strings.Contains(err.Error(), `left to expire: "b"`) {
			t.Errorf("err = %v", err)
		}
		if again := m.Release(nil); again == nil || again.Error() != err.Error() { //nolint:staticcheck // the test's point
			t.Errorf("the second call: %v", again)
		}
		if locktest.IsHeld(t, store, "a") || !locktest.IsHeld(t, store, "b") || locktest.IsHeld(t, store, "c") {
			t.Error("not only b is held")
		}
	})
}
