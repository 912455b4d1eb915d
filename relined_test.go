package holdfast

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lease that waits for its next call has one place in the lines, also when the success of a
// call that was given up arrives meanwhile.
func TestLateSuccessLinesNoLeaseUpTwice(t *testing.T) {
	var now time.Duration
	k := newKeeper(hollowLocker{}, func() time.Duration { return now }, nil)
	l := &kept{policy: &policy{timing: timing{ttl: 30 * time.Second, grace: 5 * time.Second, renewEvery: 10 * time.Second, tryTimeout: 3 * time.Second}, emit: func(Event) {}}, index: -1}
	k.closed = true // no goroutine: the test is the keeper's
	k.add(l, 0)
	now = 14 * time.Second
	late := &renewal{leases: []*kept{l}, start: 10 * time.Second}
	k.mu.Lock()
	l.failed(errHung, now) // late was given up
	k.lineUp(l)
	k.renewed(l, late, now, nil)
	places := func() int {
		s := k.linesOf(l)
		return len(s.fresh) + len(s.retries)
	}
	now = 28 * time.Second // the renewal after the late success is due; the loss is at 35 s
	if k.queue.First().due() <= now {
		k.advance(l, now)
	}
	if n := places(); n != 1 || !l.lined {
		t.Errorf("the lease has %d places, lined up %v", n, l.lined)
	}
	c := k.nextCall(k.linesOf(l))
	if c == nil || len(c.leases) != 1 {
		t.Errorf("the next call is %+v", c)
	}
	k.mu.Unlock()
}

type hollowLocker struct{ Locker }

func (hollowLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }
