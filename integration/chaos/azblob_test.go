//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/fault"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// onAzurite is the emulator, which keeps its state over restarts. Its shortest TTL is
// that of Azure.
func onAzurite(t *testing.T, rec *history.Recorder) *target {
	a := env.StartAzurite(t, true)
	gate := newGate(t, a.Endpoint)
	container := a.Fresh(t)
	const ttl = 15 * time.Second
	return &target{
		name: "azblob", ttl: ttl, grants: 10 * time.Second, gap: 8 * time.Second,
		faults: azuriteFaults(a, gate, rec),
		client: func() (workload.Config, fault.Mesh) {
			proxy := fault.New(t, gate.addr)
			service := azuritetest.Emulator("http://" + proxy.Addr() + gate.path)
			return workload.Config{URL: service.URL(container), TTL: ttl, Poll: 500 * time.Millisecond, Waiters: 2,
				Hold: 400 * time.Millisecond, Long: 2 * ttl, Between: time.Second}, fault.Mesh{gate.addr: proxy}
		},
	}
}

func azuriteFaults(a *env.Azurite, g *gate, rec *history.Recorder) []disturbance {
	second := time.Second
	throttled := func(status int, code string) beginning {
		return func(_ context.Context, r *rand.Rand) (ending, error) {
			g.refuse(&refusal{status, code, 0.3 + 0.6*r.Float64()})
			return func(context.Context) error { g.refuse(nil); return nil }, nil
		}
	}
	// A restart lets leases end before their time, as a clock does that jumps: what the
	// emulator reads from disk (3.37) it takes for expired.
	stop := func(ctx context.Context) error {
		rec.Record(history.Line{Kind: history.Skew})
		return a.Stop(ctx)
	}
	restart := func(ctx context.Context) error {
		defer func() { rec.Record(history.Line{Kind: history.Unskew}) }()
		return a.Restart(ctx)
	}
	return []disturbance{
		// Not killed: the emulator writes its state every few seconds only, so that
		// after a SIGKILL it has forgotten what it said it had done, tokens too.
		{"service restarted", between(stop, restart), 0, 4 * second},
		{"service frozen", between(a.Pause, a.Resume), second, 8 * second},
		{"requests refused (503 ServerBusy)", throttled(503, "ServerBusy"), second, 8 * second},
		{"requests refused (429 TooManyRequests)", throttled(429, "TooManyRequests"), second, 8 * second},
	}
}
