package sim

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is what a process does in the queues of locks, as the driver for MongoDB does it: it follows
// the hints with one cursor, and leaves queues that it no longer waits in. The queues themselves
// are in the server's records. The world's mu guards it.
type queue struct {
	link     *link
	waits    map[string][]*wait
	entered  map[string]*entry    // by name: when the request was sent that has shown the position
	leaving  map[string]int       // names whose queues to leave
	early    map[string]earlyHint // hints for names without a wait
	recent   []hint               // those that a new cursor returns again
	open     bool                 // the cursor on the hints
	since    time.Duration        // when it was opened
	idle     time.Duration        // when the last wait ended
	running  bool                 // the cursor is open or will be
	failed   bool                 // it could not be opened
	failures int                  // in a row
	closed   bool
	closing  chan struct{} // closed with it
	sending  bool          // whether the goroutine of leave exists
	leavings sync.WaitGroup
}

// wait is one call of Wait.
type wait struct {
	wake    func(turn time.Duration)
	from    time.Duration
	stopped bool
}

// entry is a position that the process has in a queue, or may have.
type entry struct {
	asked      time.Duration // when the request was sent that has shown it
	unanswered int           // requests that may enter yet
}

type earlyHint struct{ at, turn time.Duration }

// hint wakes the waiter of a lock.
type hint struct {
	name string
	turn time.Duration
}

// The times of the driver for MongoDB.
const (
	cursorTimeout = 11 * time.Second // a request for hints without an answer
	cursorLinger  = 5 * time.Second
	firstRetry    = 100 * time.Millisecond
	longestRetry  = 30 * time.Second
	leaveDelay    = 100 * time.Millisecond
	leaveTimeout  = 5 * time.Second
	hintTimeout   = time.Second
	recentHints   = 4
	longQueue     = 20
)

func newQueue(l *link) *queue {
	return &queue{link: l, waits: map[string][]*wait{}, entered: map[string]*entry{}, leaving: map[string]int{}, early: map[string]earlyHint{}, closing: make(chan struct{})}
}

// Wait implements [driver.Queue].
func (q *queue) Wait(name string, wake func(turn time.Duration)) (stop func()) {
	w := q.link.w
	w.mu.Lock()
	one := &wait{wake: wake, from: w.now()}
	turn, now := time.Duration(0), false
	if !q.closed && !q.link.p.closed {
		q.waits[name] = append(q.waits[name], one)
		if !q.running {
			q.running = true
			q.reopen(w.server.dice.upTo(2 * w.plan.Latency))
		}
		turn, now = q.sinceRefusal(name)
	}
	w.mu.Unlock()
	if now {
		wake(turn)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		q.stop(name, one)
	}
}

// sinceRefusal returns how to wake a waiter at once, if the cursor is open.
func (q *queue) sinceRefusal(name string) (turn time.Duration, wake bool) {
	asked := time.Duration(0)
	if e := q.entered[name]; e != nil {
		asked = e.asked
	}
	early, hinted := q.early[name]
	delete(q.early, name)
	switch {
	case !q.open:
		return 0, false
	case hinted && early.at >= asked:
		return early.turn, true
	case q.since < asked:
		return driver.NothingMissed, true
	}
	return driver.MaybeMissed, true
}

// usable reports whether the cursor is open, or may well be opened.
func (q *queue) usable() bool {
	if q == nil {
		return false
	}
	q.link.w.mu.Lock()
	defer q.link.w.mu.Unlock()
	return !q.failed
}

// stop ends a wait. After the last one of a name, the process leaves its queue.
func (q *queue) stop(name string, one *wait) {
	if one.stopped {
		return
	}
	one.stopped = true
	q.waits[name] = slices.DeleteFunc(q.waits[name], func(o *wait) bool { return o == one })
	if len(q.waits[name]) > 0 {
		return
	}
	delete(q.waits, name)
	if len(q.waits) == 0 {
		q.idle = q.link.w.now()
		q.link.w.after(cursorLinger, q.closeIdle)
	}
	q.leave(name)
}

// unused reports whether nobody has waited for a while.
func (q *queue) unused() bool {
	return len(q.waits) == 0 && q.link.w.now() >= q.idle+cursorLinger
}

// closeIdle closes a cursor that nobody has needed for a while.
func (q *queue) closeIdle() {
	if q.open && q.unused() {
		q.open, q.running = false, false
	}
}

// reopen opens the cursor after a time.
func (q *queue) reopen(after time.Duration) {
	w, p := q.link.w, q.link.p
	w.after(after, func() {
		now := w.now()
		switch {
		case p.closed || !q.running || q.open:
		case q.unused(): // the next wait tries again
			q.running, q.failed = false, false
		case p.frozenUntil > now:
			q.reopen(p.frozenUntil - now)
		case now < p.cutUntil || now < w.server.downUntil:
			q.failed = true
			q.retry()
		default:
			q.open, q.since, q.failed, q.failures = true, now, false, 0
			w.tracef(p.name, "follows hints")
			q.wakeAll(driver.MaybeMissed)
			for _, h := range q.recent { // they wake without a reason
				q.hear(h)
			}
		}
	})
}

// retry opens the cursor again after the backoff.
func (q *queue) retry() {
	wait := longestRetry
	if q.failures < 16 {
		wait = min(firstRetry<<q.failures, longestRetry)
	}
	q.failures++
	q.reopen(wait/2 + q.link.w.server.dice.upTo(wait/2))
}

// interrupt ends the cursor.
func (q *queue) interrupt() {
	if q.open {
		q.open = false
		q.retry()
	}
}

// wakeAll wakes every waiter.
func (q *queue) wakeAll(turn time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(q.waits)) {
		q.wake(name, turn)
	}
}

func (q *queue) wake(name string, turn time.Duration) {
	for _, one := range q.waits[name] {
		go one.wake(turn)
	}
}

// deliver delivers a hint, as the network and the faults let it.
func (q *queue) deliver(h hint) {
	w, p := q.link.w, q.link.p
	now := w.now()
	switch {
	case p.closed || !q.open:
		q.remember(h)
	case now < p.cutUntil: // the connection survives a short cut
		q.remember(h)
		if p.cutUntil-p.cutFrom < cursorTimeout && !p.cutRefuses {
			w.after(p.cutUntil-now, func() { q.hear(h) })
		}
	case now < p.deafUntil && p.garbled == 0:
		w.tracef(p.name, "a hint for %q is lost", h.name)
	case now < p.deafUntil:
		for range p.dice.IntN(3) { // lost, late or doubled
			w.after(p.dice.upTo(min(p.garbled, w.plan.Heal-now)), func() { q.hear(h) })
		}
	default:
		q.hear(h)
	}
}

func (q *queue) remember(h hint) {
	if len(q.recent) == recentHints {
		q.recent = slices.Delete(q.recent, 0, 1)
	}
	q.recent = append(q.recent, h)
}

// hear wakes the waiter of a hint.
func (q *queue) hear(h hint) {
	w, p := q.link.w, q.link.p
	if now := w.now(); p.frozenUntil > now {
		w.after(p.frozenUntil-now, func() { q.hear(h) })
		return
	}
	if p.closed {
		return
	}
	w.tracef(p.name, "is woken for %q, with turn %v", h.name, h.turn)
	if len(q.waits[h.name]) == 0 {
		q.early[h.name] = earlyHint{w.now(), h.turn}
		return
	}
	q.wake(h.name, h.turn)
}

// noteRequest notes that a request is sent that may enter the queue.
func (q *queue) noteRequest(name string, at time.Duration) *entry {
	q.link.w.mu.Lock()
	defer q.link.w.mu.Unlock()
	e := q.entered[name]
	if e == nil {
		e = &entry{asked: at}
		q.entered[name] = e
	}
	e.unanswered++
	return e
}

// noteReply notes what a reply has shown of the position. After a grant another request may enter yet.
func (q *queue) noteReply(name string, e *entry, asked time.Duration, granted bool, position int) {
	q.link.w.mu.Lock()
	defer q.link.w.mu.Unlock()
	e.unanswered--
	present := q.entered[name]
	switch {
	case position > 0 && !granted && present == nil:
		q.entered[name] = &entry{asked: asked}
	case position > 0 && !granted:
		present.asked = asked
	case present == e && e.unanswered == 0:
		delete(q.entered, name)
	case present == e && granted && len(q.waits[name]) == 0: // nobody waits who would leave the queue later
		q.leave(name)
	}
}

// leave leaves the queue of a name in the background, if the process is in it. mu is held.
func (q *queue) leave(name string) {
	e := q.entered[name]
	if e == nil {
		return
	}
	delete(q.entered, name)
	q.leaving[name] += e.unanswered
	if !q.sending && !q.closed {
		q.sending = true
		q.leavings.Go(q.leaveQueues)
	}
}

func (q *queue) leaveQueues() {
	l := q.link
	for {
		select {
		case <-time.After(leaveDelay):
		case <-q.closing:
		}
		names := q.takeLeaving()
		if len(names) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		l.perform(ctx, "leave", names[0], driver.LeaseID{}, func() answer { return l.w.server.leave(l.p, names) })
		cancel()
		l.w.mu.Lock()
		for _, name := range names { // its request may have crossed the command
			if _, again := q.entered[name]; again {
				q.early[name] = earlyHint{l.w.now(), 0}
				q.wake(name, 0)
			}
		}
		l.w.mu.Unlock()
	}
}

func (q *queue) takeLeaving() (names []string) {
	q.link.w.mu.Lock()
	defer q.link.w.mu.Unlock()
	for name, unanswered := range sorted(q.leaving) {
		if e := q.entered[name]; e != nil {
			e.unanswered += unanswered
		} else {
			names = append(names, name)
		}
	}
	clear(q.leaving)
	q.sending = len(names) > 0
	return names
}

// close leaves the queues. The end of ctx interrupts it.
func (q *queue) close(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		q.link.w.mu.Lock()
		defer q.link.w.mu.Unlock()
		q.link.p.disconnect()
	})()
	q.link.w.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.closing)
	}
	clear(q.waits)
	q.link.w.mu.Unlock()
	q.leavings.Wait()
}

// releaseInTurns releases a lock as the driver for MongoDB does: with one command if nobody waits.
// Otherwise the release is on the primary alone when hints wake the first waiters, and a read of what a
// majority has makes it certain.
func (l *link) releaseInTurns(ctx context.Context, lease driver.Lease) error {
	s := l.w.server
	op := "release"
	send := func(decide func() answer) answer {
		defer func() { op = "release again" }()
		return l.perform(ctx, op, lease.Name, lease.ID, decide)
	}
	if !lease.Contended {
		a := send(func() answer { return s.release(lease, true) })
		if a.err != nil || a.matched {
			return a.err
		}
	}
	for range 3 {
		a := send(func() answer {
			a := s.release(lease, false)
			a.write = nil // only the primary has it
			return a
		})
		if a.err != nil {
			return a.err
		}
		l.sendHints(ctx, lease.Name, a.waiters)
		if released, err := l.released(ctx, lease, len(a.waiters) > 0); released || err != nil {
			return err
		}
	}
	return errBackend
}

// released reports, by a read of what a majority has, whether a lease has certainly no lock any more.
func (l *link) released(ctx context.Context, lease driver.Lease, woken bool) (bool, error) {
	a := l.perform(ctx, "confirm", lease.Name, driver.LeaseID{}, func() answer { return l.w.server.confirm(lease) })
	if a.err == nil && !a.matched && !woken {
		l.sendHints(ctx, lease.Name, a.waiters)
	}
	return a.err == nil && !a.matched, a.err
}

// sendHints leaves a hint for each of the first waiters of a lock.
func (l *link) sendHints(ctx context.Context, name string, waiters []string) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	for i, waiter := range waiters {
		l.perform(ctx, "hint", name, driver.LeaseID{}, func() answer {
			l.w.server.hint(waiter, hint{name, driver.Turn(i + 1)})
			return answer{}
		})
	}
}
