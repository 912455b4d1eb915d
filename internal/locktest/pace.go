package locktest

import (
	"sync"
	"testing"
	"time"
)

// Pace bounds how often the waiters of one client ask, whatever becomes of their requests:
// in any second, and on the average from the first request to the last.
//
// Only the first waiter for a name asks. Between two of its requests it rests: after a
// failure for three quarters of a hundredth of the TTL or more, and more with each failure;
// else for the poll interval less a fifth, or until it is woken. What wakes it is a release
// or a removal, which is another grant's end, or the end of the holder's time, which is let
// pass, again and again, at intervals that double from 10 ms. So a grant or a failure costs
// a request of its own, and the rest come at the poll interval; with slots, one for each.
type Pace struct {
	tb    testing.TB
	ttl   time.Duration
	poll  time.Duration
	Slots int

	mu     sync.Mutex
	begin  time.Time
	recent []time.Time // of the last second
	n      int
}

func NewPace(tb testing.TB, ttl, poll time.Duration) *Pace {
	return &Pace{tb: tb, ttl: ttl, poll: poll, Slots: 1}
}

func (p *Pace) note(op string) {
	if p == nil || op != OpAcquire && op != OpHandOver && op != OpInspect {
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
	if most := p.inASecond(); len(p.recent) == most+1 {
		p.tb.Errorf("more than %d requests within a second", most)
	}
}

// inASecond is what a second has room for: one request for each of the shortest rests.
func (p *Pace) inASecond() int {
	return p.Slots * (int(time.Second/min(p.ttl/100*3/4, 10*time.Millisecond)) + int(time.Second/(p.poll*4/5)) + 20)
}

// Verify checks the average. events are what may have woken waiters or cost requests of
// their own: grants of any client, calls that failed, breaks.
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
