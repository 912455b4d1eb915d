package benchratio

import (
	"math/rand/v2"
	"testing"
	"time"
)

// With a known ratio under heavy noise, the interval holds it about as often as
// it says.
func TestIntervalHoldsTheTruth(t *testing.T) {
	const truth, runs, pairs = 1.2, 400, 301
	rnd := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range runs {
		var base, ours []time.Duration
		for range pairs {
			noise := 1 + rnd.ExpFloat64() // the weather of a pair
			base = append(base, time.Duration(1e6*noise*(1+0.1*rnd.Float64())))
			ours = append(ours, time.Duration(1e6*noise*truth*(1+0.1*rnd.Float64())))
		}
		r := evaluate(base, ours)
		if r.Low > r.Median || r.Median > r.High {
			t.Fatalf("out of order: %+v", r)
		}
		if r.Low <= truth && truth <= r.High {
			held++
		}
	}
	if held < runs*92/100 {
		t.Errorf("the interval held the truth in %d of %d runs", held, runs)
	}
}
