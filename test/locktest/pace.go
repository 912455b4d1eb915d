package locktest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Pace checks how often the waiters of one client ask the backend: in any second, and on average
// from the first request to the last.
//
// Only the first waiter for a name asks. After a failed request it waits for the backoff, which is
// at least three quarters of a hundredth of the TTL and grows with each failure. After any other
// request it waits for the poll interval less a fifth, or until something wakes it:
//
//   - a release or a removal, which ends another grant;
//   - the end of the holder's time, checked again at intervals that double from 10 ms.
//
// A grant or a failure therefore explains one request of its own, the poll interval all others.
// With slots this holds for each slot.
type Pace struct {
	tb    testing.TB
	ttl   time.Duration
	poll  time.Duration
	Slots int // 1 by default

	mu     sync.Mutex
	begin  time.Time
	recent []time.Time // of the last second
	n      int
}

// NewPace makes a check; a violation is an error of the test.
func NewPace(tb testing.TB, ttl, poll time.Duration) *Pace {
	return &Pace{tb: tb, ttl: ttl, poll: poll, Slots: 1}
}

// Note is for [Faulty].Check: it counts one call.
func (p *Pace) Note(_ context.Context, op string) {
	if op != OpAcquire && op != OpInspect {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.n++; p.n == 1 {
		p.begin = now
	}
	for len(p.recent) > 0 && now.Sub(p.recent[0]) >= time.Second {
		p.recent = p.recent[1:]
	}
	p.recent = append(p.recent, now)
	if most := p.mostPerSecond(); len(p.recent) == most+1 {
		p.tb.Errorf("more than %d requests within a second", most)
	}
}

// mostPerSecond is the bound for any second: one request for each of the shortest waits.
func (p *Pace) mostPerSecond() int {
	return p.Slots * (int(time.Second/min(p.ttl/100*3/4, 10*time.Millisecond)) + int(time.Second/(p.poll*4/5)) + 20)
}

// Verify checks the average. events is the number of events that may have caused a request:
// grants to any client, failed calls, breaks.
func (p *Pace) Verify(events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return
	}
	most := p.Slots * (int(time.Since(p.begin)/(p.poll*4/5)) + events + 20)
	if p.n > most {
		p.tb.Errorf("%d requests in %v with %d events, want at most %d", p.n, time.Since(p.begin), events, most)
	}
}
