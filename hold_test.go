package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// What is left until the loss and until the expiry; the clocks may differ by 0.1 % of the
// TTL meanwhile, so work must stop that much earlier.
func TestTimeLeftOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustLock(t, newClient(t, memory.New()), "job")
		time.Sleep(4 * time.Second)
		if in, want := h.LostIn(), 21*time.Second; in != want {
			t.Errorf("lost in %v, want %v", in, want)
		}
		if in, want := h.ExpiresIn(), 26*time.Second-30*time.Millisecond; in != want {
			t.Errorf("expires in %v, want %v", in, want)
		}
	})
}

// Whoever calls Release, and whenever: it returns when the one release is over, with its
// result.
func TestReleaseAgainWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opRelease && n == 1 {
				return fault{delay: 2 * time.Second, refuse: errInjected}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		results := make(chan error, 3)
		go func() { results <- h.Release(ctx) }() // makes one attempt: then its context has ended
		synctest.Wait()
		for range 2 {
			go func() { results <- h.Release(context.Background()) }()
		}
		for range 3 {
			if err := <-results; !errors.Is(err, errInjected) || time.Since(start) != 2*time.Second {
				t.Errorf("Release after %v: %v", time.Since(start), err)
			}
		}
		for range 20 { // the result is there: a context that has ended does not hide it
			if err := h.Release(ctx); !errors.Is(err, errInjected) {
				t.Fatalf("Release afterwards: %v", err)
			}
		}
	})
}

// One who does not want to wait any longer for another's release is not kept.
func TestReleaseAgainIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRelease {
				return fault{delay: 2 * time.Second}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
		go func() { _ = h.Release(context.Background()) }()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Release after %v: %v", time.Since(start), err)
		}
	})
}

// A release that failed goes on in the background: the lock does not stay taken for the
// rest of its TTL.
func TestFailedReleaseIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opRelease && n == 1 {
				return fault{refuse: errInjected}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Release(ctx); !errors.Is(err, errInjected) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(time.Second)
		if isHeld(t, store, "job") {
			t.Error("still held")
		}
	})
}

// A driver that answers a release with "not yours" has said that the lock is not held by
// this lease, which is what Release is for.
func TestReleaseOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRelease {
				return fault{refuse: holdfast.ErrLost}
			}
			return fault{}
		})
		h := mustLock(t, newClient(t, f), "job")
		if err := h.Release(t.Context()); err != nil || f.count(opRelease) != 1 {
			t.Errorf("Release: %v, after %d requests", err, f.count(opRelease))
		}
	})
}
