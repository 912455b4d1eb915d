//go:build unix

package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/workload"
	"github.com/holdfast-go/holdfast/test/history"
)

var (
	duration = flag.Duration("chaos.duration", time.Minute, "how long to inject faults")
	seed     = flag.Uint64("chaos.seed", 0, "seed of the random faults; 0 chooses a new one")
)

func TestMain(m *testing.M) {
	workload.MainIfConfigured()
	env.Main(m)
}

// clientCount is the number of client processes on each backend.
const clientCount = 8

func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	t.Run("seed", testSeeds)
	fmt.Printf("chaos: %v with seed %d\n", *duration, *seed)
	for i, start := range []func(*testing.T, *history.Recorder) *backend{mongoBackend, azuriteBackend, postgresBackend} {
		stream := uint64(i)
		t.Run([]string{"mongodb", "azblob", "postgres"}[i], func(t *testing.T) {
			t.Parallel()
			run(t, start, *duration, *seed, stream)
		})
	}
}
