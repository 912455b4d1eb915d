//go:build unix

package scale

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkHandOver hands one lock over between two clients. It compares the time from the start of
// a release until the waiter holds the lock with the time of an acquire and a release without
// waiters, measured alternately.
func BenchmarkHandOver(b *testing.B) {
	backend := newBackend(b)
	clients := [2]*holdfast.Client{newClient(b, backend), newClient(b, backend)}
	for b.Loop() {
		var free bench.Calls
		var handOvers bench.Samples
		if err := bench.HandOvers(b.Context(), clients, "handed-over", 300, &handOvers, func() error {
			return free.Round(b.Context(), clients[0], "free")
		}); err != nil {
			b.Fatal(err)
		}
		reportHandOvers(b, &handOvers, &free)
	}
}
