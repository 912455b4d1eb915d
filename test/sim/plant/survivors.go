package main

// survived says why a generated fault breaks nothing, or what it costs.
var survived = map[string]string{
	"internal/renewal/calls.go, enqueueSoonDue: not if equal: now >= e.next-e.Timing.RenewEvery/4": "a lease that is due in exactly a " +
		"quarter of its interval is renewed with the next batch instead of this one",
	"internal/election/settings.go, resolve: left out: base.Role = telemetry.Leader": "metrics count an election as a lock; " +
		"TestMetricsOfARunner of the module otelholdfast finds it",
	"leases/manager.go, Close: left out: m.workers.Wait(ctx)": "Close returns microseconds before the " +
		"goroutines end, which have nothing left to do",
	"drivers/memory/lock.go, freed: left out: lock.KeepHistory(s.history)": "the next grant shortens the history",
	"internal/engine/hold.go, makeContext: left out: cancel(nil)": "a context that nobody uses ends with " +
		"its parent",
	"internal/engine/release.go, TryRelease: not if equal: c.now()+retryIn >= expiry": "one release more, at the very moment " +
		"of the expiry",
	"internal/engine/handoff.go, handOver: not if equal: c.now() >= h.handoffUntil": "one handoff more, at the very moment " +
		"at which they end",
}
