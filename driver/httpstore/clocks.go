package httpstore

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// Clocks notices that the clocks of a store's servers disagree, or that one was set. Each answer bounds the difference between the
// server's clock and the elapsed clock of this process: its Date lies between the request and the answer. Answers of one clock
// have bounds that overlap. The stamps of writes show the clocks of servers that this process does not use itself.
//
// While they disagree a driver returns values that are [cas.Value.Unsure].
type Clocks struct {
	elapsed func() time.Duration
	wall    func() time.Time // the time of day, or nil

	mu        sync.Mutex
	known     bool
	ahead     time.Duration // of the time of day, less the elapsed time, at the latest answer
	low, high time.Duration // of the server's time, less the elapsed time
	at, until time.Duration // the latest answer; until when the clocks count as disagreeing
	since     time.Duration // when a suspension was noticed last; answers to requests from before do not count
	seen      map[string]seen
}

// seen is which version of a value was read last, with which stamps, a time of the reading server before which it was, and when the read
// ended.
type seen struct {
	version string
	stamps  []time.Time
	at      time.Time
	ended   time.Duration
}

const (
	// tolerance is how much the bounds may miss each other.
	tolerance = time.Second
	// maxBehind is how much earlier than a read the stamp of a write may be that the read did not show: a stamp is made before the store
	// has the write, which can take seconds.
	maxBehind = 5 * time.Second
	// maxAhead is how much later than the reading server's clock the stamp of a write may be: both have steps of a second.
	maxAhead = time.Second
	// maxSeen bounds the memory for the reads before.
	maxSeen = 4096
	// Distrust is for how long clocks count as disagreeing after the last sign of it.
	Distrust = 10 * time.Minute
)

// NewClocks makes the Clocks of a store. elapsed is the elapsed clock of this process; nil is one that begins now.
func NewClocks(elapsed func() time.Duration) *Clocks {
	if elapsed == nil {
		began := time.Now()
		return &Clocks{elapsed: func() time.Duration { return time.Since(began) }, wall: time.Now}
	}
	return &Clocks{elapsed: elapsed}
}

// Elapsed reads the elapsed clock.
func (c *Clocks) Elapsed() time.Duration { return c.elapsed() }

// Note takes in the time of an answer to a request that was sent at an elapsed time.
func (c *Clocks) Note(now time.Time, sent time.Duration) {
	if now.IsZero() {
		return
	}
	received, date := c.elapsed(), time.Duration(now.UnixNano())
	low, high := date-received, date+DateStep-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended(received) || sent < c.since {
		return
	}
	if c.known {
		drift := max(0, received-c.at) / cas.MarginPart // the rates of the clocks may differ
		c.low, c.high = c.low-drift, c.high+drift
		if low > c.high+tolerance || high < c.low-tolerance {
			c.until = received + Distrust
		} else if max(low, c.low) <= min(high, c.high) {
			low, high = max(low, c.low), min(high, c.high)
		}
	}
	c.known, c.low, c.high, c.at = true, low, high, received
}

// suspended reports whether the time of day has not advanced as the elapsed clock has since the latest answer: the machine was suspended,
// for which many systems stop the elapsed clock, or somebody has set the time. Then the bounds are forgotten. mu is held.
func (c *Clocks) suspended(received time.Duration) bool {
	if c.wall == nil {
		return false
	}
	before := c.ahead
	c.ahead = time.Duration(c.wall().UnixNano()) - received
	if before == 0 || max(c.ahead-before, before-c.ahead) <= tolerance {
		return false
	}
	c.known, c.since = false, received
	return true
}

// NoteStamps takes in the stamps of a value that was read: when its parts were written. No value has no version. A stamp that the read
// before did not show is of a write after that. If it is earlier, it is by the clock of a server that is behind, by which its leases seem
// to end too early. Not every write leaves a stamp: Kubernetes notes none for one that only removes fields. asked is the elapsed time when
// the read began.
func (c *Clocks) NoteStamps(name, version string, stamps []time.Time, now time.Time, asked time.Duration) {
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
	if known && before.version != version {
		var written time.Time
		for _, stamp := range stamps {
			if stamp.After(written) && !slices.ContainsFunc(before.stamps, stamp.Equal) {
				written = stamp
			}
		}
		if !written.IsZero() && before.at.Sub(written) > maxBehind+DateStep {
			c.until = received + Distrust
		}
	}
	if c.seen == nil || len(c.seen) >= maxSeen {
		c.seen = map[string]seen{}
	}
	c.seen[name] = seen{version, stamps, now.Add(asked - received), received}
}

// Ahead reports whether the stamp of a write is by a clock that is ahead of the reading server's: then the write's age is unknown.
func Ahead(written, now time.Time) bool { return !now.IsZero() && written.Sub(now) > maxAhead }

// Disagree reports whether the clocks have disagreed lately.
func (c *Clocks) Disagree() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until > 0 && c.elapsed() < c.until
}

// Skew is how far a wall clock of this process, which shows now, is ahead of the store's. It is not known before the first answer.
func (c *Clocks) Skew(now time.Time) (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	store := c.elapsed() + (c.low+c.high)/2 // of the bounds
	return time.Duration(now.UnixNano()) - store, c.known
}
