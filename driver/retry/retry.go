// Package retry has the backoff between the attempts of a call.
package retry

import (
	"context"
	"math"
	"time"
)

// endless is a delay that never ends. A longer one would overflow when it is doubled or jittered.
const endless = math.MaxInt64 / 4

// Delay returns the delay before retry number n, counted from 0. It doubles from first up to most. The caller jitters it, so that
// processes that failed together do not retry together.
func Delay(n int, first, most time.Duration) time.Duration {
	d := first
	most = min(most, endless)
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// Wait waits for a time, and then returns true. It returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
