// Package timing computes when a lease is lost and when it expires, and the delays between calls.
package timing

import (
	"errors"
	"math"
	"math/bits"
	"time"
)

// Timing has the durations of a lease. They count from just before the last successful request
// was sent: the backend began to count no earlier.
type Timing struct {
	TTL            time.Duration // of the lease, on the backend's clock
	Grace          time.Duration // how long before the expiry the lease counts as lost
	RenewEvery     time.Duration // between renewals
	RequestTimeout time.Duration // bounds each backend call
}

// DriftPart is the part of a TTL, 1/1000, by which two clocks may drift apart during it. NTP
// changes the rate of a clock by 0.05 % at most.
const DriftPart = 1000

// LossAt returns when a lease is lost whose last successful request was sent at start.
func (t Timing) LossAt(start time.Duration) time.Duration {
	// Promise 2: the loss comes a grace before another can be granted the lock.
	return start + t.TTL - t.Grace
}

// ExpiresAt returns when the backend may grant the lock to another: after the TTL, less what the
// backend's clock may be faster than ours.
func (t Timing) ExpiresAt(start time.Duration) time.Duration { return start + t.TTL - t.TTL/DriftPart }

// Share returns 1/part of the TTL, at most limit: a long TTL does not lead to long delays.
func (t Timing) Share(part int, limit time.Duration) time.Duration {
	return max(min(t.TTL/time.Duration(part), limit), time.Microsecond)
}

// Backoff returns the delay after failed call n for a lease, counted from 0.
func (t Timing) Backoff(n int) time.Duration { return Jitter(t.Delay(n), backoffJitter) }

// Delay is Backoff without jitter.
func (t Timing) Delay(n int) time.Duration {
	return Delay(n, t.Share(100, time.Second), t.Share(12, 5*time.Second))
}

const backoffJitter = 0.25

// Jitter returns d changed at random by up to the given fraction either way, so that processes
// that failed together do not retry together.
func Jitter(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration((2*randomFraction()-1)*fraction*float64(d))
}

// Backoff returns the jittered delay before retry number n, counted from 0. The delay doubles
// from first up to most.
func Backoff(n int, first, most time.Duration) time.Duration {
	return Jitter(Delay(n, first, most), backoffJitter)
}

// endless is a delay that never ends. A longer one would overflow when it is doubled or jittered.
const endless = math.MaxInt64 / 4

// Delay is Backoff without jitter.
func Delay(n int, first, most time.Duration) time.Duration {
	d := first
	most = min(most, endless)
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// Class is the same for request timeouts that are about as long, and differs by one if one is twice as long.
func Class(requestTimeout time.Duration) int { return bits.Len64(uint64(requestTimeout)) }

// Patience returns how long to wait for a call whose context ends after limit: drivers need a
// moment to return.
func Patience(limit time.Duration) time.Duration { return limit + limit/4 }

// ErrHung is reported for a backend call that has not returned within its Patience.
var ErrHung = errors.New("the call did not return within its time limit")
