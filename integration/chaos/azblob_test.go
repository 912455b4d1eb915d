//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/internal/blobservice"
	"github.com/holdfast-go/holdfast/test/history"
)

// azuriteBackend starts an emulator that keeps its state over restarts. Its shortest TTL is that
// of Azure.
func azuriteBackend(t *testing.T, rec *history.Recorder) *backend {
	a := env.StartAzurite(t, true)
	throttle := newThrottlingProxy(t, a.Endpoint)
	container := a.Fresh(t)
	const ttl = 15 * time.Second
	return &backend{
		name: "azblob", ttl: ttl, grants: 10 * time.Second, maxInterval: 8 * time.Second,
		faults: azuriteFaults(a, throttle, rec),
		client: func() (workload.Config, fault.Mesh) {
			proxy := fault.New(t, throttle.addr)
			service := blobservice.Emulator("http://" + proxy.Addr() + throttle.path)
			return workload.Config{URL: service.URL(container), TTL: ttl, Poll: 500 * time.Millisecond, Waiters: 2,
				MaxHold: 400 * time.Millisecond, LongHold: 2 * ttl, MaxIdle: time.Second}, fault.Mesh{throttle.addr: proxy}
		},
	}
}

func azuriteFaults(a *env.Azurite, g *throttlingProxy, rec *history.Recorder) []faultKind {
	second := time.Second
	throttled := func(status int, code string) injectFunc {
		return func(_ context.Context, r *rand.Rand) (undoFunc, error) {
			g.refuse(&refusal{status, code, 0.3 + 0.6*r.Float64()})
			return func(context.Context) error { g.refuse(nil); return nil }, nil
		}
	}
	// A restart acts like a clock that jumps: Azurite (3.37) treats the leases that it reads from
	// disk as expired.
	stop := func(ctx context.Context) error {
		rec.Record(history.Line{Kind: history.Skew})
		return a.Stop(ctx)
	}
	restart := func(ctx context.Context) error {
		defer func() { rec.Record(history.Line{Kind: history.Unskew}) }()
		return a.Restart(ctx)
	}
	return []faultKind{
		// The service is stopped, not killed: the emulator saves its state only every few
		// seconds. After a SIGKILL it would lose writes that it has acknowledged, tokens
		// included.
		{"service restarted", injectAndUndo(stop, restart), 0, 4 * second},
		{"service frozen", injectAndUndo(a.Pause, a.Resume), second, 8 * second},
		{"requests refused (503 ServerBusy)", throttled(503, "ServerBusy"), second, 8 * second},
		{"requests refused (429 TooManyRequests)", throttled(429, "TooManyRequests"), second, 8 * second},
	}
}
