package renewal

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// A lease that waits for its next call has one place in the lines, also when the success of a
// call that was given up arrives meanwhile.
func TestLateSuccessLinesNoLeaseUpTwice(t *testing.T) {
	var now time.Duration
	k := New(hollowLocker{}, func() time.Duration { return now }, nil)
	l := &Entry{Policy: &Policy{Timing: timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second}, Emit: func(event.Event) {}}, index: -1}
	k.closed = true // no goroutine: the test is the keeper's
	k.Add(l, 0)
	now = 14 * time.Second
	late := &call{leases: []*Entry{l}, start: 10 * time.Second}
	k.mu.Lock()
	l.noteFailure(timing.ErrHung, now) // late was given up
	k.enqueue(l)
	k.takeResult(l, late, now, nil)
	places := func() int {
		s := k.queueOf(l)
		return len(s.first) + len(s.retries)
	}
	now = 28 * time.Second // the renewal after the late success is due; the loss is at 35 s
	if k.entries.First().due() <= now {
		k.advance(l, now)
	}
	if n := places(); n != 1 || !l.queued {
		t.Errorf("the lease has %d places, lined up %v", n, l.queued)
	}
	c := k.nextCall(k.queueOf(l))
	if c == nil || len(c.leases) != 1 {
		t.Errorf("the next call is %+v", c)
	}
	k.mu.Unlock()
}

type hollowLocker struct{ driver.Locker }

func (hollowLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }
