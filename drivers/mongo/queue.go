package mongo

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is the [driver.Queue] of a Locker. The queues themselves are in the documents of the locks;
// see queue_pipeline.go. This is what one process does in them.
type queue struct {
	me      string            // the ID of this Locker in queues; not a secret
	locks   *mongo.Collection // with writes that only the primary acknowledges
	hints   *hints
	watcher *watcher

	mu       sync.Mutex           // guards the fields below; never held across I/O
	entered  map[string]*entry    // by name: what is known of this Locker's position
	leaving  map[string]int       // names whose queues to leave, and how many requests may enter yet
	early    map[string]earlyHint // hints for names without a watch
	closed   bool
	closing  chan struct{} // closed with it
	sending  bool          // whether the goroutine of leaveQueues exists
	leavings sync.WaitGroup
}

// entry is a position that this Locker has in a queue, or may have.
type entry struct {
	asked      time.Time // when the request was sent that has shown it, or the first without an answer
	unanswered int       // requests that may enter the queue yet; those without an answer count until it is left
}

// earlyHint is a hint that came before the wait that it is for.
type earlyHint struct {
	at   time.Time
	turn time.Duration
}

// earlyHints is how many such hints are kept at most, and earlyHintLife how long.
const (
	earlyHints    = 1000
	earlyHintLife = time.Second
)

// newQueue needs the collection of the locks, with writes that only the primary acknowledges.
func newQueue(locks *mongo.Collection, h *hints, config config) *queue {
	q := &queue{
		me: h.me, locks: locks, hints: h,
		closing: make(chan struct{}), entered: map[string]*entry{}, leaving: map[string]int{}, early: map[string]earlyHint{},
	}
	from := h.source()
	read := from.read
	q.watcher = newWatcher(from, locks.Database().Name()+"."+h.coll.Name(), config.logger)
	q.watcher.source.read = func(hint bson.Raw) (string, time.Duration, bool) {
		name, turn, ok := read(hint)
		if ok && !q.watcher.watched(name) {
			q.cameEarly(name, turn)
		}
		return name, turn, ok
	}
	return q
}

// Wait implements [driver.Queue].
func (q *queue) Wait(name string, wake func(turn time.Duration)) (stop func()) {
	one := &watch{wake: wake}
	open := q.watcher.add(name, one)
	asked, turn, hinted := q.sinceRefusal(name)
	switch {
	case open.IsZero(): // the watcher will wake it
	case hinted:
		wake(turn)
	case open.Before(asked):
		wake(driver.NothingMissed)
	default:
		wake(driver.MaybeMissed)
	}
	return func() {
		if q.watcher.remove(name, one) {
			q.leave(name)
		}
	}
}

// sinceRefusal returns when the last refused request was sent, and whether a hint has come since.
func (q *queue) sinceRefusal(name string) (asked time.Time, turn time.Duration, hinted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entered[name]; e != nil {
		asked = e.asked
	}
	hint, hinted := q.early[name]
	delete(q.early, name)
	return asked, hint.turn, hinted && !hint.at.Before(asked)
}

// cameEarly keeps a hint for a wait that begins in a moment.
func (q *queue) cameEarly(name string, turn time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if len(q.early) >= earlyHints {
		maps.DeleteFunc(q.early, func(_ string, h earlyHint) bool { return now.Sub(h.at) > earlyHintLife })
	}
	if len(q.early) < earlyHints {
		q.early[name] = earlyHint{now, turn}
	}
}

// noteRequest notes that a request is sent that may enter the queue. Without an answer it is unknown
// whether it did.
func (q *queue) noteRequest(name string, at time.Time) *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entered[name]
	if e == nil {
		e = &entry{asked: at}
		q.entered[name] = e
	}
	e.unanswered++
	return e
}

// noteReply notes what a request has shown of this Locker's position. It was sent at asked, and e was
// noted for it. A grant ends the position, unless another request of this Locker may enter the queue
// after it. If nobody waits who would leave the queue then, it is left now.
func (q *queue) noteReply(name string, e *entry, asked time.Time, granted bool, position int) {
	if q.stays(name, e, asked, granted, position) && !q.watcher.watched(name) {
		q.leave(name)
	}
}

// stays notes a reply. It reports whether a position may remain after a grant.
func (q *queue) stays(name string, e *entry, asked time.Time, granted bool, position int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.unanswered--
	present := q.entered[name] // another one if this Locker has left the queue meanwhile
	switch {
	case position > 0 && !granted && present == nil:
		q.entered[name] = &entry{asked: asked}
	case position > 0 && !granted:
		present.asked = asked
	case present == e && e.unanswered == 0:
		delete(q.entered, name)
	}
	return granted && q.entered[name] == e
}

// leave has the Locker leave the queue of a name in the background, if it is in it. The caller has seen
// that nobody waits. A wait that has begun since then would lose its position, so it asks again.
func (q *queue) leave(name string) {
	if q.giveUp(name) {
		q.watcher.wake(name, 0)
	}
}

func (q *queue) giveUp(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entered[name]
	if e == nil {
		return false
	}
	delete(q.entered, name)
	q.leaving[name] += e.unanswered
	if !q.sending && !q.closed {
		q.sending = true
		q.leavings.Go(q.leaveQueues)
	}
	return true
}

const (
	// leaveTimeout limits each command that leaves queues.
	leaveTimeout = 5 * time.Second
	// leaveDelay is how long a position is kept for the next waiter of this Locker, whose request
	// often follows at once.
	leaveDelay = 100 * time.Millisecond
)

// leaveQueues leaves the queues of all names that are no longer waited for. A command that fails is
// not repeated: then the position costs the others one turn, once.
func (q *queue) leaveQueues() {
	for {
		select {
		case <-time.After(leaveDelay):
		case <-q.closing:
		}
		names := q.takeLeaving()
		if len(names) == 0 {
			return
		}
		for chunk := range slices.Chunk(names, renewChunkSize) {
			ctx, cancel := context.WithTimeout(q.watcher.closeCtx, leaveTimeout)
			_, _ = q.locks.UpdateMany(ctx, doc{field(fieldName, docOf("$in", chunk)), field(fieldQueue+"."+fieldWaiter, q.me)}, leaveUpdate(q.me))
			cancel()
			q.reenter(chunk)
		}
	}
}

// reenter wakes the waiters whose requests have crossed the command that left their queues: it may
// have removed their positions. Their next requests enter again.
func (q *queue) reenter(names list) {
	for _, name := range names {
		name, _ := name.(string)
		q.mu.Lock()
		_, again := q.entered[name]
		q.mu.Unlock()
		if again {
			q.cameEarly(name, 0) // its reply may be on the way
			q.watcher.wake(name, 0)
		}
	}
}

// takeLeaving takes the names whose queues to leave. Without any, leaveQueues ends.
func (q *queue) takeLeaving() (names list) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, unanswered := range q.leaving {
		if e := q.entered[name]; e != nil {
			e.unanswered += unanswered // this Locker waits again, and leaves the queue later
		} else {
			names = append(names, name)
		}
	}
	clear(q.leaving)
	q.sending = len(names) > 0
	return names
}

// close leaves the queues and stops following the hints. The end of ctx interrupts both.
func (q *queue) close(ctx context.Context) {
	defer context.AfterFunc(ctx, q.watcher.cancelClose)()
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.closing)
	}
	q.mu.Unlock()
	q.leavings.Wait()
	q.watcher.close(ctx)
}
