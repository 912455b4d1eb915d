//go:build unix

package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/integration/workload"
)

var (
	duration = flag.Duration("chaos.duration", time.Minute, "how long faults come")
	seed     = flag.Uint64("chaos.seed", 0, "which faults come; 0 means other ones each time")
)

func TestMain(m *testing.M) {
	workload.MainIfConfigured()
	env.Main(m)
}

// clients is how many processes want the lock, on each backend.
const clients = 8

func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	t.Run("seed", seeds)
	fmt.Printf("chaos: %v with seed %d\n", *duration, *seed)
	for i, start := range []func(*testing.T, *history.Recorder) *target{onMongo, onAzurite} {
		stream := uint64(i)
		t.Run([]string{"mongodb", "azblob"}[i], func(t *testing.T) {
			t.Parallel()
			run(t, start, *duration, *seed, stream)
		})
	}
}
