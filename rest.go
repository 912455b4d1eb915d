package holdfast

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// watch has the Watcher, if there is one, ring the alarm when a seat may be free.
func (a *asker) watch(alarm chan<- struct{}) (stop func()) {
	watcher := a.client.capabilities.Watcher
	if watcher == nil {
		return func() {}
	}
	var stops []func()
	for _, s := range a.seats {
		stops = append(stops, watcher.Watch(s.req.Name, func() {
			s.woken.Store(true)
			a.client.wakes.note(a.client.now())
			ring(alarm)
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ring puts a value into a channel that has room for one, unless it is there.
func ring(alarm chan<- struct{}) {
	select {
	case alarm <- struct{}{}:
	default:
	}
}

// pause is how long to leave a backend alone that fails.
func (a *asker) pause() time.Duration {
	return max(min(a.settings.retry(a.failures-1), clock.Jitter(a.settings.poll, 0.2)), time.Millisecond)
}

// rest waits until it is time to ask again, and returns the seats to ask for.
func (a *asker) rest(ctx context.Context, alarm <-chan struct{}, w *waiter) []*seat {
	if a.failures > 0 {
		select {
		case <-time.After(a.pause()):
		case <-ctx.Done():
		}
		return a.open()
	}
	r := resting{asker: a, seats: a.open()}
	r.sights = make(chan sight, 2*len(r.seats))
	for _, s := range r.seats {
		r.plan(s)
		defer s.forget()
	}
	for {
		next := slices.MinFunc(r.seats, func(a, b *seat) int { return cmp.Compare(a.askAt, b.askAt) }).askAt
		timer := time.NewTimer(max(next-a.client.now(), time.Millisecond))
		var ask []*seat
		select {
		case <-timer.C:
			ask = only(r.seats, func(s *seat) bool { return s.askAt <= next })
		case <-alarm:
			ask = only(a.seats, func(s *seat) bool { return s.woken.Swap(false) && r.wake(s) })
		case <-w.nudge:
			freed := a.client.queues.freedOf(w)
			ask = only(a.seats, func(s *seat) bool { return slices.Contains(freed, s.slot) })
		case seen := <-r.sights:
			ask = only([]*seat{seen.seat}, func(*seat) bool { return r.takeIn(seen) })
		case <-ctx.Done():
		}
		timer.Stop()
		if len(ask) > 0 || ctx.Err() != nil {
			return ask
		}
	}
}

// resting is an asker at rest.
type resting struct {
	*asker
	seats []*seat // that others hold
	// sights are what looks have shown. There is room for one of each seat, and for one
	// more whose look was canceled too late.
	sights chan sight
}

// sight is what a look showed of a seat.
type sight struct {
	seat   *seat
	record Record
	err    error
}

// plan sets when to ask for a seat and when to look.
func (r *resting) plan(s *seat) {
	var lookAt time.Duration
	s.askAt, lookAt = s.schedule()
	if s.lookable() && lookAt < s.askAt {
		r.look(s, lookAt)
	}
}

// look has the lookout look at a seat's record.
func (r *resting) look(s *seat, at time.Duration) {
	s.forget()
	sights := r.sights
	s.unlook = r.client.lookout.look(s.req.Name, at, func(record Record, err error) {
		select {
		case sights <- sight{s, record, err}:
		default:
		}
	})
}

// wake reports whether to ask for a seat whose Watcher has called. The first call says
// only that the watch is in effect, and a flood of calls that it is so again after a gap:
// then a look does, and those of a process that waits for a thousand names travel
// together.
func (r *resting) wake(s *seat) (ask bool) {
	first := !s.watching
	s.watching = true
	switch {
	case !slices.Contains(r.seats, s): // this process holds it, and will know
		return false
	case (first || r.client.wakes.flood(r.client.now())) && s.lookable():
		r.look(s, r.client.now())
		return false
	}
	return true
}

// wakes counts the calls of the Watcher, to know a flood of them.
type wakes struct {
	mu    sync.Mutex
	since time.Duration
	n     int
}

// A flood is more calls than floodSize in floodTime.
const (
	floodSize = 32
	floodTime = 100 * time.Millisecond
)

func (w *wakes) note(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.since > floodTime {
		w.since, w.n = now, 0
	}
	w.n++
}

func (w *wakes) flood(now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > floodSize && now-w.since <= 2*floodTime
}

// takeIn takes in what a look showed, and reports whether to ask.
func (r *resting) takeIn(seen sight) (ask bool) {
	if seen.seat.looked(seen.record, seen.err) {
		return true
	}
	r.client.queues.note(r.name, r.last)
	r.plan(seen.seat)
	return false
}

// forget cancels the look that is planned.
func (s *seat) forget() {
	if s.unlook != nil {
		s.unlook()
		s.unlook = nil
	}
}

func only(seats []*seat, want func(*seat) bool) (some []*seat) {
	for _, s := range seats {
		if want(s) {
			some = append(some, s)
		}
	}
	return some
}
