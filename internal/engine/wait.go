package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// watch has the backend send to wake when a slot may be free.
func (a *Acquisition) watch(wake chan<- struct{}) (stop func()) {
	return a.Watch(func(t *Attempt, turn time.Duration) {
		t.woken.note(turn)
		a.client.wakeups.note(a.client.now())
		notify(wake)
	})
}

// Watch has the backend's Queue or Watcher, if there is one, call wake when a slot may be free.
// turn is how long to wait before the request, driver.NothingMissed or driver.MaybeMissed. A Watcher
// says only that the lock may be free.
func (a *Acquisition) Watch(wake func(t *Attempt, turn time.Duration)) (stop func()) {
	queue, watcher := a.client.capabilities.Queue, a.client.capabilities.Watcher
	var stops []func()
	for _, t := range a.Attempts {
		switch {
		case a.queued:
			a.waited = true
			stops = append(stops, queue.Wait(t.req.Name, func(turn time.Duration) { wake(t, turn) }))
		case watcher != nil:
			stops = append(stops, watcher.Watch(t.req.Name, func() { wake(t, driver.MaybeMissed) }))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// notify sends to a channel of capacity 1, unless a value is there already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Backoff is how long to leave a backend alone that fails.
func (a *Acquisition) Backoff() time.Duration {
	return max(min(a.settings.Backoff(a.Failures-1), timing.Jitter(a.settings.Poll, 0.2)), time.Millisecond)
}

// waitForNext waits until requests are due, and returns their attempts. After a
// failure it waits for the whole backoff, whatever wakes it.
func (a *Acquisition) waitForNext(ctx context.Context, wake <-chan struct{}, w *waiter) []*Attempt {
	if a.Failures > 0 {
		select {
		case <-time.After(a.Backoff()):
		case <-ctx.Done():
		}
		return a.candidates()
	}
	r := waiting{Acquisition: a, attempts: a.candidates()}
	r.readings = make(chan reading, 2*len(r.attempts))
	for _, t := range r.attempts {
		r.schedule(t)
		defer t.CancelRead()
	}
	for {
		next := slices.MinFunc(r.attempts, func(x, y *Attempt) int { return cmp.Compare(x.tryAt, y.tryAt) }).tryAt
		timer := time.NewTimer(max(next-a.client.now(), time.Millisecond))
		var due []*Attempt
		select {
		case <-timer.C:
			due = filter(r.attempts, func(t *Attempt) bool { return t.tryAt <= next })
		case <-wake:
			due = filter(a.Attempts, func(t *Attempt) bool {
				turn, woken := t.woken.take()
				return woken && r.wokenUp(t, turn)
			})
		case <-w.slotFreed:
			freed := a.client.queues.takeFreed(w)
			due = filter(a.Attempts, func(t *Attempt) bool { return slices.Contains(freed, t.slot) })
		case got := <-r.readings:
			if r.sawRecord(got) {
				due = []*Attempt{got.attempt}
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if len(due) > 0 || ctx.Err() != nil {
			return due
		}
	}
}

// waiting is an acquisition between two requests.
type waiting struct {
	*Acquisition
	attempts []*Attempt // for slots that others hold
	// readings has the results of reads. There is room for one of each attempt, and for one more
	// whose read was canceled too late.
	readings chan reading
}

// reading is what a read has shown of an attempt's slot.
type reading struct {
	attempt *Attempt
	record  driver.Record
	err     error
}

// schedule sets when to send an attempt's next request, and plans a read before that.
func (r *waiting) schedule(t *Attempt) {
	t.CancelRead()
	var readAt time.Duration
	t.tryAt, readAt = t.Schedule()
	if t.Readable() && readAt < t.tryAt {
		r.read(t, readAt)
	}
}

// read plans a read of an attempt's record.
func (r *waiting) read(t *Attempt, at time.Duration) {
	t.CancelRead()
	readings := r.readings
	t.StopRead = r.client.reader.Read(t.req.Name, at, func(record driver.Record, err error) {
		select {
		case readings <- reading{t, record, err}:
		default:
		}
	})
}

// wokenUp reports whether to send a request for a slot that the Watcher or the Queue has called
// for.
//
// The first call of a Watcher says only that the watch is in effect. A flood of calls says the same
// after a gap. Then a read is enough, and the reads of a process that waits for a thousand names
// share a call. A Queue whose call says that it is this waiter's turn gets a request at once: a read
// may show the record of before the release, and a waiter that misses its turn loses its position.
func (r *waiting) wokenUp(t *Attempt, turn time.Duration) (try bool) {
	first := !t.Watching
	t.Watching = true
	switch {
	case !slices.Contains(r.attempts, t): // this process holds the slot: slotFreed reports its release
		return false
	case turn == driver.NothingMissed:
		r.schedule(t) // polls are rarer now
		return false
	case turn > 0: // another waiter comes first
		t.CancelRead() // its result would plan another time
		t.tryAt = min(t.tryAt, r.client.now()+turn)
		return false
	case turn == driver.MaybeMissed && (first || r.client.wakeups.flood(r.client.now())) && t.Readable():
		r.read(t, r.client.now())
		return false
	}
	return true
}

// sawRecord notes the result of a read, and reports whether to send a request.
func (r *waiting) sawRecord(got reading) (try bool) {
	if got.attempt.SawRecord(got.record, got.err) {
		return true
	}
	r.client.queues.note(r.name, r.last)
	r.schedule(got.attempt)
	return false
}

// wakeUp has the most urgent of the Watcher's calls, or of the Queue's, since it was last taken: the
// earliest turn, else MaybeMissed, else NothingMissed.
type wakeUp struct {
	mu    sync.Mutex
	turn  time.Duration
	woken bool
}

func (w *wakeUp) note(turn time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.woken || urgency(turn) < urgency(w.turn) {
		w.turn, w.woken = turn, true
	}
}

func (w *wakeUp) take() (turn time.Duration, woken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken, w.woken = w.woken, false
	return w.turn, woken
}

// urgency is the order of turns.
func urgency(turn time.Duration) time.Duration {
	switch turn {
	case driver.MaybeMissed:
		return driver.MaxTurn + 1
	case driver.NothingMissed:
		return driver.MaxTurn + 2
	}
	return min(turn, driver.MaxTurn)
}

// wakeups counts the calls of the Watcher, to detect a flood of them.
type wakeups struct {
	mu    sync.Mutex
	since time.Duration
	n     int
}

// A flood is more than floodSize calls within floodTime.
const (
	floodSize = 32
	floodTime = 100 * time.Millisecond
)

// note counts a call.
func (w *wakeups) note(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.since > floodTime {
		w.since, w.n = now, 0
	}
	w.n++
}

// flood reports whether there is a flood of calls now.
func (w *wakeups) flood(now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > floodSize && now-w.since <= 2*floodTime
}

// filter returns the attempts that match.
func filter(attempts []*Attempt, match func(*Attempt) bool) (some []*Attempt) {
	for _, t := range attempts {
		if match(t) {
			some = append(some, t)
		}
	}
	return some
}
