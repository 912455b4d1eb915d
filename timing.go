package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// timing is when a lease is renewed, counted as lost, and over.
type timing struct {
	ttl, grace, renewEvery, tryTimeout time.Duration
}

// lossAt is when a lease last renewed by a request sent at start counts as lost.
func (t timing) lossAt(start time.Duration) time.Duration { return start + t.ttl - t.grace }

// expiresAt is when the backend may grant it to another: the whole TTL, less 0.1 %
// in case its clock runs faster than ours (NTP slews at most 0.05 %).
func (t timing) expiresAt(start time.Duration) time.Duration { return start + t.ttl - t.ttl/driftPart }

// driftPart is the part of a TTL, 0.1 %, that is allowed for clocks that do not run
// equally fast.
const driftPart = 1000

// share is a part of the TTL, and not more than most: with a TTL of hours nobody waits
// for minutes.
func (t timing) share(part int, most time.Duration) time.Duration {
	return max(min(t.ttl/time.Duration(part), most), time.Microsecond)
}

// retry is the pause after failure number n (from 0) of calls for a lease.
func (t timing) retry(n int) time.Duration {
	return clock.Backoff(n, t.share(100, time.Second), t.share(12, 5*time.Second))
}

// patience is how long to wait for a call that is to return within a limit.
func patience(limit time.Duration) time.Duration { return limit + limit/4 }
