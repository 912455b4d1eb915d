package cas_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// wantGrants checks how many grants the stored value of lock n counts.
func wantGrants(t *testing.T, store *memStore, what string, want uint64) {
	t.Helper()
	if p, ok := cas.ReadPresent(store.read(keyOf("n")).Data); !ok || p.Grants != want {
		t.Errorf("%s: %d grants, want %d", what, p.Grants, want)
	}
}

// Grants are counted, and neither renewals nor refused requests, repeats and releases.
func TestPresentCountsGrants(t *testing.T) {
	store, clock := newStore(), locktest.NewClock()
	store.now = clock.Now
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
	var lease driver.Lease
	acquire := func(id string) {
		t.Helper()
		lease = mustAcquire(t, l, request("n", id, time.Minute))
	}
	acquire("first")
	wantGrants(t, store, "acquired", 1)
	acquire("first")
	wantGrants(t, store, "repeated", 1)
	waits := waiting("n", "w", time.Minute, "waiter")
	if _, err := l.TryAcquire(t.Context(), waits); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	wantGrants(t, store, "refused", 1)
	mustRenew(t, l, lease)
	wantGrants(t, store, "renewed", 1)
	clock.Advance(time.Hour)
	acquire("second")
	wantGrants(t, store, "taken over after its end", 2)
	if err := errors.Join(l.Release(t.Context(), lease), l.RemoveProbe(t.Context(), "n")); err != nil {
		t.Fatal(err)
	}
	wantGrants(t, store, "released and removed", 2)
	acquire("third")
	wantGrants(t, store, "acquired again", 3)
}

// The count goes on from that of another program, and counts its holders if it counts none.
func TestGrantsOfOtherPrograms(t *testing.T) {
	for counted, want := range map[uint64]uint64{0: 3, 2: 3, 7: 8} {
		store, clock, l := openShared(t)
		mustRelease(t, l, mustAcquire(t, l, request("n", "1", 5*time.Second)))
		theirs := other("a", clock.Now())
		theirs.Grants = counted
		store.hold("n", theirs)
		waits := waiting("n", "w", time.Minute, "waiter")
		if _, err := l.TryAcquire(t.Context(), waits); !errors.Is(err, driver.ErrHeld) { // stores what it sees, and a position
			t.Fatal(err)
		}
		wantGrants(t, store.memStore, "beside the other", want-1)
		if theirs.Mark = ""; counted == 0 {
			theirs.Mark = "renewed"
		}
		store.hold("n", theirs)
		clock.Advance(time.Hour)
		mustAcquire(t, l, waits)
		wantGrants(t, store.memStore, "after the other", want)
	}
}
