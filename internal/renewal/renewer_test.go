package renewal

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// A loss is reported before the owner of the lease is called. That call ends the hold's context
// and lets the next waiter of this process acquire the lock, whose event must come later.
func TestLossIsReportedBeforeTheContextEnds(t *testing.T) {
	var order []string
	e := &Entry{index: -1, owner: ownerFunc(func(error) { order = append(order, "owner called") })}
	e.Lease.Name = "job"
	e.Policy = &Policy{Emit: func(ev event.Event) { order = append(order, ev.Type.String()) }}
	r := &Renewer{wake: make(chan struct{}, 1)}
	r.lose(e, driver.ErrLost)()
	if want := []string{"lost", "owner called"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

type ownerFunc func(cause error)

func (f ownerFunc) Lost(cause error)      { f(cause) }
func (f ownerFunc) Renewed(time.Duration) {}
func (f ownerFunc) Overran()              {}

// An entry that waits for its next call is in its queue once, also when a call that is no longer
// waited for succeeds meanwhile.
func TestLateSuccessQueuesNoEntryTwice(t *testing.T) {
	var now time.Duration
	r := New(bareLocker{}, func() time.Duration { return now }, nil, false)
	e := &Entry{Policy: &Policy{Timing: timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second}, Emit: func(event.Event) {}}, index: -1}
	r.closed = true // no goroutine: the test takes its part
	r.Add(e, 0)
	now = 14 * time.Second
	late := &call{leases: []*Entry{e}, start: 10 * time.Second}
	r.mu.Lock()
	e.noteFailure(timing.ErrHung, now) // late is no longer waited for
	r.enqueue(e)
	r.noteResult(e, late, now, nil)
	now = 28 * time.Second // the renewal after the late success is due; the loss is at 35 s
	if r.entries.First().due() <= now {
		r.advance(e, now)
	}
	q := r.queueOf(e)
	if n := len(q.first) + len(q.retries); n != 1 || !e.queued {
		t.Errorf("the entry is queued %d times; queued: %v", n, e.queued)
	}
	c := r.nextCall(q)
	if c == nil || len(c.leases) != 1 {
		t.Errorf("the next call is %+v", c)
	}
	r.mu.Unlock()
}

type bareLocker struct{ driver.Locker }

func (bareLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }
