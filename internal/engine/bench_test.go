package engine_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// What programs may check before every write costs nanoseconds and no allocation.
func BenchmarkQuestions(b *testing.B) {
	client, err := holdfast.New(memory.New(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Shutdown(context.Background())
	runner, err := holdfast.NewLeaderAwareRunner(client, "leader")
	if err != nil {
		b.Fatal(err)
	}
	err = runner.Run(b.Context(), func(ctx context.Context) error {
		hold, _ := holdfast.HoldFromContext(ctx)
		// As deep in a call stack as programs have it.
		for range 3 {
			ctx = context.WithValue(ctx, depth{}, 1)
		}
		check(b, "IsLeader", func() bool { return runner.IsLeader() })
		check(b, "HoldErr", func() bool { return hold.Err() == nil })
		check(b, "TokenFrom", func() bool { _, ok := holdfast.TokenFromContext(ctx); return ok })
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

type depth struct{}

// check fails if a function does not return true, or if it allocates.
func check(b *testing.B, name string, fn func() bool) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !fn() {
				b.Fatal("the result is false")
			}
		}
		if n := testing.AllocsPerRun(100, func() { fn() }); n != 0 {
			b.Errorf("%v allocations", n)
		}
	})
}

// benchmarkAcquire acquires and releases a lock in memory.
func benchmarkAcquire(b *testing.B, opts ...holdfast.ClientOption) {
	client, err := holdfast.New(memory.New(), append(opts, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(time.Hour))...)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Shutdown(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		h, err := client.TryLock(b.Context(), "job")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTelemetry measures an acquire and a release without a hook, and with one that does nothing.
func BenchmarkTelemetry(b *testing.B) {
	b.Run("hook=none", func(b *testing.B) { benchmarkAcquire(b) })
	b.Run("hook=ignore", func(b *testing.B) { benchmarkAcquire(b, holdfast.WithHook(telemetry.Ignore{})) })
}
