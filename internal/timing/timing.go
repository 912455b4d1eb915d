// Package timing says when a lease is renewed, when it counts as lost, and when it expires.
package timing

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// Timing is the time line of a lease. All durations count from the moment just before the last
// successful request was sent: the backend's own count began no earlier.
type Timing struct {
	TTL            time.Duration // of the lease, on the backend's clock
	Grace          time.Duration // how long before the expiry the lease counts as lost
	RenewEvery     time.Duration // between renewals
	RequestTimeout time.Duration // of each backend call
}

// DriftPart is the part of a TTL, 0.1 %, that is allowed for clocks that do not run equally
// fast. NTP changes the rate of a clock by 0.05 % at most.
const DriftPart = 1000

// LossAt is when a lease counts as lost that was last renewed by a request sent at start.
//
// Promise 2: it lies the whole grace before the moment when another can be granted the lock.
func (t Timing) LossAt(start time.Duration) time.Duration { return start + t.TTL - t.Grace }

// ExpiresAt is when the backend may grant the lock to another: the whole TTL, less what its
// clock may run faster than ours.
func (t Timing) ExpiresAt(start time.Duration) time.Duration { return start + t.TTL - t.TTL/DriftPart }

// Share is a part of the TTL, at most limit: with a TTL of hours nobody waits for minutes.
func (t Timing) Share(part int, limit time.Duration) time.Duration {
	return max(min(t.TTL/time.Duration(part), limit), time.Microsecond)
}

// Backoff is the delay after failed attempt n, counted from 0, of calls for a lease.
func (t Timing) Backoff(n int) time.Duration {
	return clock.Backoff(n, t.Share(100, time.Second), t.Share(12, 5*time.Second))
}

// Patience is how long to wait for a call whose context ends after limit: drivers need a moment
// to return.
func Patience(limit time.Duration) time.Duration { return limit + limit/4 }

// ErrHung is the result of a backend call that has not returned within its Patience.
var ErrHung = errors.New("the call did not return within its time limit")
