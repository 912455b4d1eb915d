package timing_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/timing"
)

type draws struct {
	id       string
	n        int
	d        time.Duration
	jittered time.Duration
	order    []int
}

func draw() draws {
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	timing.Shuffle(order)
	b := make([]byte, 16)
	timing.RandomBytes(b)
	return draws{string(b), timing.RandomInt(1 << 30), timing.RandomDuration(time.Hour), timing.Jitter(time.Hour, 1), order}
}

// A seed decides every draw, and only until the source is restored.
func TestReplaceRandom(t *testing.T) {
	seeded := func() draws {
		defer timing.ReplaceRandom(rand.New(rand.NewPCG(1, 2)))()
		return draw()
	}
	a, b, other := seeded(), seeded(), draw()
	if a.id != b.id || a.n != b.n || a.d != b.d || a.jittered != b.jittered || !slices.Equal(a.order, b.order) {
		t.Errorf("one seed, and two results: %v and %v", a, b)
	}
	if a.id == other.id || a.d == other.d || a.jittered == other.jittered || slices.Equal(a.order, other.order) {
		t.Errorf("%v after the source was restored is the same as %v", other, a)
	}
}

func TestRandomRanges(t *testing.T) {
	for _, restore := range []func(){func() {}, timing.ReplaceRandom(rand.New(rand.NewPCG(3, 4)))} {
		for range 1000 {
			if n, d, f := timing.RandomInt(3), timing.RandomDuration(3), timing.Jitter(time.Second, 1); n < 0 || n > 2 || d < 0 || d > 2 || f < 0 ||
				f >= 2*time.Second {
				t.Fatalf("out of range: %d, %d, %v", n, d, f)
			}
		}
		restore()
	}
}

func BenchmarkJitter(b *testing.B) {
	for b.Loop() {
		_ = timing.Jitter(time.Second, 0.2)
	}
}
