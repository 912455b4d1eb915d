package ratio

import (
	"math/rand/v2"
	"testing"
	"time"
)

// With heavy noise, the interval contains the true ratio in about 95 % of the runs.
func TestIntervalContainsTheTrueRatio(t *testing.T) {
	const trueRatio, runs, pairs = 1.2, 400, 301
	rnd := rand.New(rand.NewPCG(1, 2))
	contained := 0
	for range runs {
		var base, ours []time.Duration
		for range pairs {
			noise := 1 + rnd.ExpFloat64() // the same for both of a pair
			base = append(base, time.Duration(1e6*noise*(1+0.1*rnd.Float64())))
			ours = append(ours, time.Duration(1e6*noise*trueRatio*(1+0.1*rnd.Float64())))
		}
		r := evaluate(base, ours)
		if r.Low > r.Median || r.Median > r.High {
			t.Fatalf("out of order: %+v", r)
		}
		if r.Low <= trueRatio && trueRatio <= r.High {
			contained++
		}
	}
	if contained < runs*92/100 {
		t.Errorf("the interval contained the true ratio in %d of %d runs", contained, runs)
	}
}
