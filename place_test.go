package holdfast_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Calls of a driver that do not return, even long after their time limit, keep none of the
// places there are for them, whatever has become of the leases meanwhile.

// deafTo is a backend that never answers one kind of call for the locks "ill …".
func deafTo(t *testing.T, store *memory.Store, deaf string) *faulty {
	return newFaulty(t, store.Locker(), func(op string, _ int, l holdfast.Lease) fault {
		if op == deaf && strings.HasPrefix(l.Name, "ill ") {
			return fault{delay: time.Hour, deaf: true, refuse: errInjected}
		}
		return fault{}
	})
}

func TestRenewalsOfReleasedLeasesKeepNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, deafTo(t, memory.NewStore(), opRenew))
		var ill []*holdfast.Hold
		for i := range 64 {
			ill = append(ill, mustLock(t, c, fmt.Sprint("ill ", i)))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 10, 0)
		time.Sleep(6 * time.Second) // the ill are being renewed
		for _, h := range ill {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(3 * time.Minute)
		allHeld(t, well)
	})
}

func TestRenewalsOfLostLeasesKeepNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := deafTo(t, memory.NewStore(), opRenew)
		deaf := f.faults
		f.faults = func(op string, n int, l holdfast.Lease) fault {
			if ft := deaf(op, n, l); ft.deaf || op != opRenew || n%2 == 0 {
				return ft
			}
			return fault{refuse: errInjected} // so that the others need the places of retries
		}
		c := newClient(t, f)
		for i := range 400 {
			mustLock(t, c, fmt.Sprint("ill ", i))
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		well := lockMany(t, c, 100, 10*time.Millisecond)
		time.Sleep(3 * time.Minute)
		allHeld(t, well)
	})
}

// Renewals that hang and are tried again leave half of the places to the others, which are
// renewed when they are due.
func TestHungRetriesLeavePlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) fault {
			switch {
			case op != opRenew:
				return fault{}
			case strings.HasPrefix(l.Name, "ill "):
				return fault{hang: true}
			}
			return fault{delay: 5 * time.Millisecond}
		}))
		for i := range 80 { // 64 are sent at 10 s and fail at 13 s
			mustLock(t, c, fmt.Sprint("ill ", i))
		}
		time.Sleep(5 * time.Second)
		well := lockMany(t, c, 40, 0)
		time.Sleep(10*time.Second + 100*time.Millisecond) // the well are due at 15 s
		for _, h := range well {
			if in := h.LostIn(); in < 24*time.Second {
				t.Fatalf("%q is lost in %v: it was not renewed at its time", h.Name(), in)
			}
		}
	})
}

// A call gives its place back once, also if it was given up before it returned.
func TestLateRenewalGivesItsPlaceBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &counted{faulty: newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
			switch {
			case op != opRenew:
				return fault{}
			case n <= 64:
				return fault{delay: 5 * time.Second, deaf: true}
			}
			return fault{delay: 100 * time.Millisecond}
		})}
		c := newClient(t, counted)
		holds := lockMany(t, c, 64, 0)
		time.Sleep(10 * time.Second)
		for i := range 300 { // due at 20 s
			holds = append(holds, mustLock(t, c, fmt.Sprint("next ", i)))
		}
		time.Sleep(9 * time.Second) // the late calls have returned
		counted.worst.Store(0)
		time.Sleep(5 * time.Second)
		if n := counted.worst.Load(); n != 64 {
			t.Errorf("%d renewals at once, want 64", n)
		}
		allHeld(t, holds)
	})
}

func TestCleanUpsThatNeverReturnKeepNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := deafTo(t, store, opRelease)
		deaf := f.faults
		f.faults = func(op string, n int, l holdfast.Lease) fault {
			if op == opAcquire {
				return fault{lose: errInjected}
			}
			return deaf(op, n, l)
		}
		c := newClient(t, f, holdfast.WithTTL(5*time.Minute))
		for i := range 100 {
			_, _ = c.TryLock(t.Context(), fmt.Sprint("ill ", i))
		}
		_, _ = c.TryLock(t.Context(), "well")
		time.Sleep(time.Minute)
		if isHeld(t, store, "well") {
			t.Error("not cleaned up")
		}
	})
}

func TestReleasesThatNeverReturnKeepNoPlace(t *testing.T) {
	for late, ill := range map[time.Duration]int{time.Second: 64, time.Minute: 2000} { // during Shutdown, and after
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := newClient(t, deafTo(t, store, opRelease))
			for i := range ill {
				mustLock(t, c, fmt.Sprint("ill ", i))
			}
			did := make(chan time.Duration, 1)
			go func() {
				var ended time.Time
				_ = c.Do(t.Context(), "well", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(late)
					ended = time.Now()
					return nil
				})
				did <- time.Since(ended)
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := time.Now()
			if err := c.Shutdown(ctx); err == nil || time.Since(start) != 20*time.Second {
				t.Errorf("Shutdown took %v: %v", time.Since(start), err)
			}
			if d := <-did; d > 5*time.Second {
				t.Errorf("Do returned %v after its function", d)
			}
			if late < 20*time.Second && isHeld(t, store, "well") {
				t.Error("not released")
			}
		})
	}
}
