package election_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// What is for hot paths allocates nothing, with the default clock and with another one.
func TestHotPathsDoNotAllocate(t *testing.T) {
	for name, opts := range map[string][]holdfast.ClientOption{
		"default clock": nil, "test's clock": {holdfast.WithElapsed(func() time.Duration { return time.Second })},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := holdfast.New(memory.New(), append(opts, holdfast.WithLogger(slog.New(slog.DiscardHandler)))...)
			if err != nil {
				t.Fatal(err)
			}
			locktest.ShutDownAtEnd(t, c)
			h, r := locktest.MustLock(t, c, "a"), locktest.NewRunner(t, c)
			defer locktest.Release(t, h)
			isLeader := func() {
				if r.IsLeader() {
					t.Error("leads before its first call")
				}
			}
			free := func(what string, call func()) {
				if n := testing.AllocsPerRun(1000, call); n != 0 {
					t.Errorf("%s allocates %v times", what, n)
				}
			}
			free("Hold.Err", func() { _ = h.Err() })
			free("TokenFromContext", func() { _, _ = holdfast.TokenFromContext(h.Context()) })
			free("IsLeader of another instance", isLeader)
			mustRun(t, r, locktest.EmptyTask, true)
			free("IsLeader of the leader", func() {
				if !r.IsLeader() {
					t.Error("does not lead")
				}
			})
		})
	}
}

// All methods are called at once, from many goroutines, on the real clock, for the race detector.
func TestRunner_Concurrency(t *testing.T) {
	store := memory.NewStore()
	check := locktest.NewExclusive(t)
	var clients []*holdfast.Client
	var wg sync.WaitGroup
	end := time.Now().Add(300 * time.Millisecond)
	again := func(fn func()) {
		wg.Go(func() {
			for time.Now().Before(end) {
				fn()
			}
		})
	}
	fn := func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		check.EnterAgain(ctx, "job", token)
		holdfast.Heartbeat(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		return nil
	}
	for range 3 {
		c, err := holdfast.New(store.Locker(), holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(10*time.Second),
			holdfast.WithPollInterval(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		r := locktest.NewRunner(t, c, holdfast.WithCoolDown(time.Millisecond), holdfast.WithIdleLimit(5*time.Millisecond),
			holdfast.WithStallTimeout(50*time.Millisecond),
			holdfast.WithHealthCheck(2*time.Millisecond, func(context.Context) error { return nil }))
		ctx := t.Context()
		again(func() { _ = r.Run(ctx, fn) })
		for range 2 {
			again(func() { _, _ = r.RunTaskOnLeader(ctx, fn) })
			again(func() { _ = r.StepDown(ctx); time.Sleep(3 * time.Millisecond) })
		}
		again(func() {
			limited, cancel := context.WithTimeout(ctx, time.Millisecond/2)
			defer cancel()
			_ = r.StepDown(limited)
			time.Sleep(7 * time.Millisecond)
		})
		again(func() { _, _ = r.Leader(ctx); _ = r.IsLeader() })
		wg.Go(func() {
			time.Sleep(time.Until(end))
			for range 2 {
				wg.Go(func() {
					if err := r.Close(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
			}
		})
	}
	wg.Wait()
	if locktest.IsHeld(t, store, "job") {
		t.Error("held after all runners were closed")
	}
	for _, c := range clients {
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
}
