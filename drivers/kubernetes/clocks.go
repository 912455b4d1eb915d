package kubernetes

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// clocks notices that the clocks of several API servers disagree, or that one was set. Each answer bounds the difference between the
// server's clock and the elapsed clock of this process: its Date lies between the request and the answer. Answers of one clock
// have bounds that overlap. The stamps of writes show the clocks of servers that this process does not use itself.
type clocks struct {
	elapsed func() time.Duration // the elapsed clock

	mu        sync.Mutex
	known     bool
	low, high time.Duration // of the server's time, less the elapsed time
	at, until time.Duration // the latest answer; until when the clocks count as disagreeing
	seen      map[string]seen
}

// seen is which version of a Lease was read last, a time of the reading server before which it was, and when the read ended.
type seen struct {
	version string
	at      time.Time
	ended   time.Duration
}

const (
	// tolerance is how much the bounds may miss each other.
	tolerance = time.Second
	// maxBehind is how much earlier than a read the stamp of a write may be that the read did not show: a stamp is made before etcd has
	// the write, which can take seconds.
	maxBehind = 5 * time.Second
	// maxSeen bounds the memory for the reads before.
	maxSeen = 4096
	// distrust is for how long clocks count as disagreeing after the last sign of it.
	distrust = 10 * time.Minute
)

// elapsedClock returns an elapsed clock that begins now.
func elapsedClock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// note takes in the time of an answer to a request that was sent at an elapsed time.
func (c *clocks) note(now time.Time, sent time.Duration) {
	if now.IsZero() {
		return
	}
	received, date := c.elapsed(), time.Duration(now.UnixNano())
	low, high := date-received, date+httpstore.DateStep-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		drift := max(0, received-c.at) / cas.MarginPart // the rates of the clocks may differ
		c.low, c.high = c.low-drift, c.high+drift
		if low > c.high+tolerance || high < c.low-tolerance {
			c.until = received + distrust
		} else if max(low, c.low) <= min(high, c.high) {
			low, high = max(low, c.low), min(high, c.high)
		}
	}
	c.known, c.low, c.high, c.at = true, low, high, received
}

// noteStamp takes in the stamp of a Lease that was read. If the version is not that of the read before, it was written after that. A
// stamp that is earlier is by the clock of a server that is behind, by which its leases seem to end too early.
func (c *clocks) noteStamp(name, version string, written, now time.Time, asked time.Duration) {
	if now.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.elapsed()
	before, known := c.seen[name]
	if known && asked <= before.ended {
		return // the reads overlapped: this version may be the older one
	}
	if known && before.version != version && !written.IsZero() && before.at.Sub(written) > maxBehind+httpstore.DateStep {
		c.until = received + distrust
	}
	if c.seen == nil || len(c.seen) >= maxSeen {
		c.seen = map[string]seen{}
	}
	c.seen[name] = seen{version, now.Add(asked - received), received}
}

// disagree reports whether the clocks have disagreed lately.
func (c *clocks) disagree() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until > 0 && c.elapsed() < c.until
}
