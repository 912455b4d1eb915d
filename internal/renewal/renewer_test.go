package renewal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
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
	r := New(bareLocker{}, func() time.Duration { return 0 }, nil, false)
	r.lose(e, driver.ErrLost)()
	if want := []string{"lost", "owner called"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

// newPolicy is the policy of leases whose events nobody observes.
func newPolicy(ttl, grace, renewEvery, requestTimeout time.Duration) *Policy {
	times := timing.Timing{TTL: ttl, Grace: grace, RenewEvery: renewEvery, RequestTimeout: requestTimeout}
	return &Policy{Timing: times, Emit: func(event.Event) {}}
}

type ownerFunc func(cause error)

func (f ownerFunc) Lost(cause error)      { f(cause) }
func (f ownerFunc) Renewed(time.Duration) {}
func (f ownerFunc) Overran()              {}
func (f ownerFunc) Cancel(error)          {}

// An entry that waits for its next call is in its queue once, also when a call that is no longer
// waited for succeeds meanwhile.
func TestLateSuccessQueuesNoEntryTwice(t *testing.T) {
	var now time.Duration
	var calls atomic.Int64
	r := New(bareLocker{renewals: &calls}, func() time.Duration { return now }, nil, false)
	e := &Entry{Policy: newPolicy(30*time.Second, 5*time.Second, 10*time.Second, 3*time.Second), index: -1, queued: -1}
	r.closed = true // no goroutine: the test takes its part
	r.Add(e, 0)
	now = 14 * time.Second
	late := &call{entries: []*Entry{e}, start: 10 * time.Second}
	r.mu.Lock()
	e.noteFailure(timing.ErrHung, now) // late is no longer waited for
	r.enqueue(e)
	r.noteResult(e, late, now, driver.LeaseState{}, nil)
	now = 28 * time.Second // the renewal after the late success is due; the loss is at 35 s
	if r.entries.First().due() <= now {
		r.advance(e, now)
	}
	if e.queued != 0 {
		t.Errorf("the entry is number %d of those that wait for a call", e.queued)
	}
	r.due.Start()
	if e.queued != -1 || e.call == nil || len(e.call.leases) != 1 {
		t.Errorf("after its call began, the entry is number %d, and the call is %+v", e.queued, e.call)
	}
	r.mu.Unlock()
	if r.calls.Wait(t.Context()); calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// bareLocker counts its renewals.
type bareLocker struct {
	driver.Locker
	renewals *atomic.Int64
}

func (l bareLocker) Renew(_ context.Context, lease driver.Lease) (driver.Lease, error) {
	l.renewals.Add(1)
	return lease, nil
}

func (bareLocker) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// newEntry adds an entry with a TTL of 30 s, whose loss is at 25 s, to a Renewer without a goroutine.
func newEntry(r *Renewer, name string, emit func(event.Event)) *Entry {
	e := &Entry{}
	p := &Policy{Timing: timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second,
		RequestTimeout: 3 * time.Second}, Emit: emit}
	e.Init(p, driver.Lease{Name: name, TTL: p.Timing.TTL}, ownerFunc(func(error) {}))
	r.closed = true
	r.Add(e, 0)
	r.closed = false
	return e
}

// Whoever removes an entry after its time does so before the Renewer has noticed the loss, and reports it.
func TestRemoveReportsALossThatNobodyHasNoticed(t *testing.T) {
	for at, want := range map[time.Duration][]event.Type{24 * time.Second: nil, 25 * time.Second: {event.Lost}} {
		var now time.Duration
		var reported []event.Type
		r := New(bareLocker{}, func() time.Duration { return now }, nil, false)
		e := newEntry(r, "job", func(ev event.Event) { reported = append(reported, ev.Type) })
		now = at
		if held := r.Remove(e); held != (want == nil) || !slices.Equal(reported, want) {
			t.Errorf("removed at %v: held %v, reported %v", at, held, reported)
		}
		if r.Remove(e) || len(reported) != len(want) {
			t.Errorf("removed again at %v: reported %v", at, reported)
		}
	}
}

// Close says of the leases that it gives up why they are lost.
func TestCloseGivesUpWhatIsLeft(t *testing.T) {
	r := New(bareLocker{}, func() time.Duration { return 0 }, nil, false)
	e := newEntry(r, "job", func(event.Event) {})
	if !r.Close(t.Context()) {
		t.Error("a call is under way")
	}
	if err := e.LostErr(); !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "Shutdown gave up") {
		t.Errorf("LostErr: %v", err)
	}
}

// After Close the Renewer's goroutine has ended, if no lease was left.
func TestCloseWaitsForItsGoroutine(t *testing.T) {
	for range 100 {
		r := New(bareLocker{}, func() time.Duration { return 0 }, nil, false)
		e := &Entry{}
		e.Init(newPolicy(time.Minute, 0, 20*time.Second, 0), driver.Lease{}, ownerFunc(func(error) {}))
		r.Add(e, 0)
		r.Remove(e)
		r.Close(t.Context())
		select {
		case <-r.done:
		default:
			t.Fatal("it has not ended")
		}
	}
}
