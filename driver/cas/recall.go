package cas

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// The State of a lease is the value that its last request wrote, and the version of that value. With it the next
// request needs no read: it writes on the condition that the value still has the version. If the write is
// refused, or the value says that nothing should be written, the value is read, and that decides.
//
// With a store's clock the request must know the time without a read, too. See storeClock.

// leaseState is the State of a lease whose value was just written. It is empty if nothing was, and with several readers: each
// of them would keep a copy of all, which the next renewal of another makes useless.
func (s *state) leaseState() driver.LeaseState {
	if s == nil || s.written == nil || len(s.Readers) > 1 {
		return driver.LeaseState{}
	}
	return driver.NewLeaseState(strconv.Itoa(len(s.version)) + ":" + s.version + string(s.written))
}

// parseState returns the version and the value of a State.
func parseState(content string) (version string, data []byte, ok bool) {
	digits, rest, found := strings.Cut(content, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n <= 0 || n > len(rest) {
		return "", nil, false
	}
	return rest[:n], []byte(rest[n:]), true
}

// recall makes the state in which the last request of a lease left the record. It is nil if the lease's State
// cannot be used, so that the record must be read.
func (l *Locker) recall(lease driver.Lease) *state {
	version, data, ok := parseState(lease.State.Content())
	if !ok {
		return nil
	}
	v, asked := Value{Data: data, Version: version}, l.elapsed()
	if l.config.Info.Expiry == driver.ByServer {
		if v.Now, ok = l.clock.at(asked); !ok {
			return nil
		}
	}
	s, err := l.stateOf(lockrecord.Key(lease.Name), lease.Name, v)
	// Promise 1: the time may be ahead of the store's, so it does not judge the lease of another.
	if err != nil || !s.Has(lockrecord.Digest(lease.ID)) {
		return nil
	}
	// By observation, a State that is not what was seen last is out of date, and does not count as seen now: that would
	// put off the takeover of the present lease.
	if l.config.Info.Expiry == driver.ByObservation {
		since, ok := l.sightings.Still(s.Name, s.mark(), asked)
		if !ok {
			return nil
		}
		l.judgeByObservation(s, since, asked)
	} else if l.judge(s, v.Now, asked) != nil {
		return nil
	}
	if s.now.Elapsed < s.Used { // the clock was set
		return nil
	}
	s.recalled, s.asked = true, asked
	return s
}

// cutShort reports whether the lease in a state that was recalled, and written just now, ends too early. The
// store's clock has stepped forward then, or this process was suspended, since the clock was read last. took is
// how long ago the time was concluded, and now the store's clock as the write returned it. Without that nothing shows that the lease
// lasts. A step that is no longer than both the duration and Config.ClockStep together is not seen; the grace of the lease covers it.
func (s *state) cutShort(now time.Time, took time.Duration) bool {
	return s.recalled && s.extends > 0 && (now.IsZero() || s.ends-s.extends < time.Duration(now.UnixNano())-took)
}

// maxClockAge is how old a reading of the store's clock may be from which the present time is concluded.
const maxClockAge = 5 * time.Minute

// storeClock has the latest reading of the store's clock. The present time is concluded from it: a moment later than
// the store's clock is, never earlier, unless that was set meanwhile. Only a store whose writes return the time
// has one, because each write must show whether the conclusion was right.
type storeClock struct {
	mu    sync.Mutex
	known bool
	asked time.Duration // the elapsed time before the call that returned now
	now   time.Time
}

// note takes in an answer of the store. write says that a write returned it.
func (c *storeClock) note(asked time.Duration, now time.Time, write bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if write {
		c.known = !now.IsZero()
	}
	if !now.IsZero() && (c.now.IsZero() || asked >= c.asked) {
		c.asked, c.now = asked, now
	}
}

// at returns the store's time at an elapsed time of this process.
func (c *storeClock) at(elapsed time.Duration) (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := elapsed - c.asked
	return c.now.Add(age + age/MarginPart), c.known && !c.now.IsZero() && age >= 0 && age <= maxClockAge
}
