package retry

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// The delay doubles up to its limit, also where that, or the number of failures, is very large.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		n                 int
		first, most, want time.Duration
	}{
		{-1, 3, 100, 3},
		{0, 3, 100, 3},
		{1, 3, 100, 6},
		{5, 3, 100, 96},
		{6, 3, 100, 100},
		{math.MaxInt, 3, 100, 100},
		{0, 200, 100, 100},
		{math.MaxInt, 1, math.MaxInt64, endless},
	} {
		if got := Delay(c.n, c.first, c.most); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A wait ends after its time, or with its context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if whole := Wait(ctx, 2*time.Second); !whole || time.Since(begin) != 2*time.Second {
			t.Errorf("%v after %v", whole, time.Since(begin))
		}
		if whole := Wait(ctx, 2*time.Second); whole || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", whole, time.Since(begin))
		}
	})
}
