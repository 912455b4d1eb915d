package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := newClient(t, store.Locker())
		mustLock(t, other, "taken")
		c := newClient(t, store.Locker())
		raw := mustLock(t, c, "raw")
		waited := make(chan error, 2)
		for _, name := range []string{"raw", "taken"} { // behind this process's own hold, and asking
			go func() { _, err := c.Lock(t.Context(), name); waited <- err }()
		}
		did := make(chan error, 1)
		stopped := false
		go func() {
			did <- c.Do(t.Context(), "did", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute) // renewed until it returns
				stopped = true
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if !stopped {
			t.Error("Shutdown did not wait for the function of Do")
		}
		for range 2 {
			if err := <-waited; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a waiter: %v", err)
			}
		}
		if err := <-did; !errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		if !errors.Is(raw.Err(), holdfast.ErrClosed) {
			t.Errorf("Err: %v", raw.Err())
		}
		for _, name := range []string{"raw", "did"} {
			if isHeld(t, store, name) {
				t.Errorf("%q is still held", name)
			}
		}
		if err := raw.Release(t.Context()); err != nil {
			t.Errorf("Release after Shutdown: %v", err)
		}
		if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("TryLock: %v", err)
		}
		if err := c.Do(t.Context(), "x", func(context.Context) error { return nil }); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Do: %v", err)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown again: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // the result is there: a context that has ended does not hide it
			if err := c.Shutdown(ended); err != nil {
				t.Fatalf("Shutdown again by an ended context: %v", err)
			}
		}
	})
}

// Every error of Shutdown says what has not returned, also that of a renewal alone.
func TestShutdownNamesTheRenewalItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRenew {
				return fault{delay: time.Hour, deaf: true}
			}
			return fault{}
		}))
		h := mustLock(t, c, "job")
		time.Sleep(11 * time.Second) // into the renewal
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "holdfast: shutdown: a renewal ") {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestShutdownThatRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		under := store.Locker()
		f := newFaulty(t, under, func(op string, _ int, l holdfast.Lease) fault {
			if op == opRelease {
				return fault{hang: true}
			}
			return fault{}
		})
		c := newClient(t, f)
		mustLock(t, c, "job")
		block := make(chan struct{})
		done := make(chan error)
		go func() { done <- c.Do(t.Context(), "stuck", func(context.Context) error { <-block; return nil }) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		err := c.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("Shutdown: %v", err)
		}
		if d := time.Since(start); d > 25*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		if _, err := under.Inspect(t.Context(), "job"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Shutdown gave up and left the Locker open: %v", err)
		}
		renewals := f.count(opRenew)
		time.Sleep(31 * time.Second)
		if f.count(opRenew) != renewals || isHeld(t, store, "stuck") || isHeld(t, store, "job") {
			t.Error("what was left to expire is still kept")
		}
		close(block)
		if err := <-done; !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestShutdownDrainsCleanUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			switch {
			case op == opAcquire:
				return fault{lose: errInjected}
			case op == opRelease && n <= 3:
				return fault{refuse: errInjected}
			}
			return fault{}
		}))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, errInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		start := time.Now()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if isHeld(t, store, "job") {
			t.Error("held after Shutdown")
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
	})
}

// A clean-up that rests between two releases is not waited for: one more, at once, ends it.
func TestShutdownHurriesCleanUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opAcquire {
				return fault{lose: errInjected}
			}
			return fault{}
		}))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, errInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(12 * time.Second) // pauses of seconds by now
		start := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("Shutdown: %v after %v", err, time.Since(start))
		}
	})
}

// So is one that plans its next release in the very moment when Shutdown begins.
func TestShutdownHurriesACleanUpBeingPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var slow atomic.Bool // the next reading of the clock
		planning := make(chan struct{})
		f := newFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) fault {
			switch {
			case op == opAcquire:
				return fault{lose: errInjected}
			case op == opRelease && n == 6: // the next would come after about 7 s
				slow.Store(true)
			}
			return fault{}
		})
		c := newClient(t, f, holdfast.WithElapsed(func() time.Duration {
			if slow.CompareAndSwap(true, false) {
				close(planning)
				time.Sleep(time.Second)
			}
			return time.Since(start)
		}))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, errInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		<-planning
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(began) > 600*time.Millisecond {
			t.Errorf("Shutdown: %v after %v", err, time.Since(began))
		}
		if n := f.count(opRelease); n != 7 {
			t.Errorf("%d releases were sent, want one more", n)
		}
	})
}

// Whatever a caller is in the middle of when it is canceled, or when the client is
// shut down: it returns soon, and nothing stays taken for longer than a TTL.
func TestCancellationAtEveryAwaitPoint(t *testing.T) {
	faults := map[string]fault{
		"slow": {delay: 300 * time.Millisecond}, "refused": {refuse: errInjected}, "lost": {lose: errInjected},
		"late": {late: 3 * time.Second},
	}
	for name, ft := range faults {
		for _, shut := range []bool{false, true} {
			for at := time.Duration(0); at < 12*time.Second; at += 137 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					check := newExclusive(t)
					holder := newClient(t, store.Locker())
					first := mustLock(t, holder, "job")
					check.enter(first.Context(), "job", first.Token())
					time.AfterFunc(2*time.Second, func() { _ = first.Release(context.Background()) })
					c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
						if n%3 == 1 {
							return ft
						}
						return fault{delay: 50 * time.Millisecond}
					}), holdfast.WithTTL(6*time.Second))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(at, func() {
						if shut {
							_ = c.Shutdown(context.Background())
						} else {
							cancel()
						}
					})
					start := time.Now()
					err := c.Do(ctx, "job", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						check.enter(ctx, "job", token)
						<-ctx.Done()
						return ctx.Err()
					})
					if d := time.Since(start) - at; d > 7*time.Second {
						t.Errorf("%s at %v, shutdown %v: returned %v later", name, at, shut, d)
					}
					if shut != errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Errorf("%s at %v: %v", name, at, err)
					}
					time.Sleep(9 * time.Second) // a late request and the longest pause of a clean-up
					next := newClient(t, store.Locker())
					h, err := next.TryLock(t.Context(), "job")
					if err != nil {
						t.Errorf("%s at %v, shutdown %v: still taken: %v", name, at, shut, err)
						return
					}
					check.enter(h.Context(), "job", h.Token())
				})
			}
		}
	}
}

// Thousands of releases do not go to the backend at once.
func TestShutdownReleasesSoManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		counted := &counted{faulty: newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRelease {
				return fault{delay: 5 * time.Millisecond}
			}
			return fault{}
		})}
		c := newClient(t, counted)
		for i := range 2000 {
			mustLock(t, c, fmt.Sprint(i))
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := counted.worst.Load(); n > 64 {
			t.Errorf("%d releases at once", n)
		}
		for i := range 2000 {
			if isHeld(t, store, fmt.Sprint(i)) {
				t.Fatalf("lock %d is left held", i)
			}
		}
	})
}
