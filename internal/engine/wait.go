package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// watch has the Watcher, if there is one, ring the alarm when a seat may be free.
func (a *Acquisition) watch(alarm chan<- struct{}) (stop func()) {
	watcher := a.client.capabilities.Watcher
	if watcher == nil {
		return func() {}
	}
	var stops []func()
	for _, s := range a.Attempts {
		stops = append(stops, watcher.Watch(s.req.Name, func() {
			s.woken.Store(true)
			a.client.wakeups.note(a.client.now())
			notify(alarm)
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ring puts a value into a channel that has room for one, unless it is there.
func notify(alarm chan<- struct{}) {
	select {
	case alarm <- struct{}{}:
	default:
	}
}

// pause is how long to leave a backend alone that fails.
func (a *Acquisition) Backoff() time.Duration {
	return max(min(a.settings.Backoff(a.Failures-1), clock.Jitter(a.settings.Poll, 0.2)), time.Millisecond)
}

// rest waits until it is time to ask again, and returns the seats to ask for.
func (a *Acquisition) waitForNext(ctx context.Context, alarm <-chan struct{}, w *waiter) []*Attempt {
	if a.Failures > 0 {
		select {
		case <-time.After(a.Backoff()):
		case <-ctx.Done():
		}
		return a.candidates()
	}
	r := waiting{Acquisition: a, attempts: a.candidates()}
	r.readings = make(chan reading, 2*len(r.attempts))
	for _, s := range r.attempts {
		r.schedule(s)
		defer s.CancelRead()
	}
	for {
		next := slices.MinFunc(r.attempts, func(a, b *Attempt) int { return cmp.Compare(a.tryAt, b.tryAt) }).tryAt
		timer := time.NewTimer(max(next-a.client.now(), time.Millisecond))
		var ask []*Attempt
		select {
		case <-timer.C:
			ask = only(r.attempts, func(s *Attempt) bool { return s.tryAt <= next })
		case <-alarm:
			ask = only(a.Attempts, func(s *Attempt) bool { return s.woken.Swap(false) && r.worthAsking(s) })
		case <-w.slotFreed:
			freed := a.client.queues.freedOf(w)
			ask = only(a.Attempts, func(s *Attempt) bool { return slices.Contains(freed, s.slot) })
		case seen := <-r.readings:
			ask = only([]*Attempt{seen.attempt}, func(*Attempt) bool { return r.sawRecord(seen) })
		case <-ctx.Done():
		}
		timer.Stop()
		if len(ask) > 0 || ctx.Err() != nil {
			return ask
		}
	}
}

// resting is an asker at rest.
type waiting struct {
	*Acquisition
	attempts []*Attempt // that others hold
	// sights are what looks have shown. There is room for one of each seat, and for one
	// more whose look was canceled too late.
	readings chan reading
}

// sight is what a look showed of a seat.
type reading struct {
	attempt *Attempt
	record  driver.Record
	err     error
}

// plan sets when to ask for a seat and when to look.
func (r *waiting) schedule(s *Attempt) {
	var lookAt time.Duration
	s.tryAt, lookAt = s.Schedule()
	if s.Readable() && lookAt < s.tryAt {
		r.read(s, lookAt)
	}
}

// look has the lookout look at a seat's record.
func (r *waiting) read(s *Attempt, at time.Duration) {
	s.CancelRead()
	sights := r.readings
	s.StopRead = r.client.reader.Read(s.req.Name, at, func(record driver.Record, err error) {
		select {
		case sights <- reading{s, record, err}:
		default:
		}
	})
}

// wake reports whether to ask for a seat whose Watcher has called. The first call says
// only that the watch is in effect, and a flood of calls that it is so again after a gap:
// then a look does, and those of a process that waits for a thousand names travel
// together.
func (r *waiting) worthAsking(s *Attempt) (ask bool) {
	first := !s.Watching
	s.Watching = true
	switch {
	case !slices.Contains(r.attempts, s): // this process holds it, and will know
		return false
	case (first || r.client.wakeups.flood(r.client.now())) && s.Readable():
		r.read(s, r.client.now())
		return false
	}
	return true
}

// wakes counts the calls of the Watcher, to know a flood of them.
type wakeups struct {
	mu    sync.Mutex
	since time.Duration
	n     int
}

// A flood is more calls than floodSize in floodTime.
const (
	floodSize = 32
	floodTime = 100 * time.Millisecond
)

func (w *wakeups) note(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.since > floodTime {
		w.since, w.n = now, 0
	}
	w.n++
}

func (w *wakeups) flood(now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > floodSize && now-w.since <= 2*floodTime
}

// takeIn takes in what a look showed, and reports whether to ask.
func (r *waiting) sawRecord(seen reading) (ask bool) {
	if seen.attempt.SawRecord(seen.record, seen.err) {
		return true
	}
	r.client.queues.note(r.name, r.last)
	r.schedule(seen.attempt)
	return false
}

// forget cancels the look that is planned.
func (s *Attempt) CancelRead() {
	if s.StopRead != nil {
		s.StopRead()
		s.StopRead = nil
	}
}

func only(seats []*Attempt, want func(*Attempt) bool) (some []*Attempt) {
	for _, s := range seats {
		if want(s) {
			some = append(some, s)
		}
	}
	return some
}
