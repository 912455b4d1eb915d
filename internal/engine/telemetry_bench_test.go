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
