package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Races, in real time: each is run many times.

// Shutdown while many locks are being taken: a hold that Shutdown finds before the
// keeper has it must not take another's place out of the keeper's heap.
func TestCorner_ShutdownWhileTaking(t *testing.T) {
	for round := range 60 {
		var mu sync.Mutex
		renewed := map[string]bool{}
		released := map[string]bool{}
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.faults = func(op string, _ int, l holdfast.Lease) fault {
			mu.Lock()
			defer mu.Unlock()
			switch op {
			case opRelease:
				released[l.Name] = true
			case opRenew:
				if released[l.Name] {
					renewed[l.Name] = true
				}
			}
			return fault{}
		}
		var lost events
		c, err := holdfast.New(f, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(lost.observe))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { _, _ = c.TryLock(context.Background(), fmt.Sprint(i)) })
		}
		time.Sleep(time.Duration(round%30) * 20 * time.Microsecond)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := c.Shutdown(ctx); err != nil {
			t.Errorf("round %d: Shutdown: %v", round, err)
		}
		cancel()
		wg.Wait()
		if n := lost.count(holdfast.EventLost); n > 0 {
			t.Fatalf("round %d: %d lost", round, n)
		}
	}
}

// Shutdown "finishes the clean-ups": also that of a TryLock which it cuts short.
func TestCorner_ShutdownCleansUpTryLock(t *testing.T) {
	for round := range 40 {
		store := memory.NewStore()
		under := store.Locker()
		const n = 300
		var inside sync.WaitGroup
		inside.Add(n)
		c, err := holdfast.New(changed{Locker: under, acquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			_, _ = under.TryAcquire(ctx, req) // applied; the answer does not come before Shutdown
			inside.Done()
			<-ctx.Done()
			return holdfast.Lease{}, ctx.Err()
		}}, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, _ = c.TryLock(context.Background(), fmt.Sprint(i)) })
		}
		inside.Wait()
		if err := c.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		left := 0
		for i := range n {
			if isHeld(t, store, fmt.Sprint(i)) {
				left++
			}
		}
		if left > 0 {
			t.Fatalf("round %d: Shutdown returned nil and left %d locks taken", round, left)
		}
	}
}

// A loss is told before the acquisition that follows it in the same process.
func TestCorner_EventsInOrder(t *testing.T) {
	store := memory.NewStore()
	admin := store.Locker()
	for round := range 300 {
		var seen events
		c, err := holdfast.New(newFaulty(t, store.Locker(), nil), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
			holdfast.WithObserver(seen.observe), holdfast.WithTTL(30*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		first, err := c.Lock(context.Background(), "job")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := c.Lock(context.Background(), "job")
			next <- err
		}()
		if err := admin.BreakNow(context.Background(), "job"); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		if err := c.Shutdown(context.Background()); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Fatal(err)
		}
		_ = first
		held := 0
		for _, e := range seen.types() {
			switch e {
			case holdfast.EventAcquired:
				if held++; held > 1 {
					t.Fatalf("round %d: %v", round, seen.types())
				}
			case holdfast.EventLost, holdfast.EventReleased:
				held--
			}
		}
	}
}
