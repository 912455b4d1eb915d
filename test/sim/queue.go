package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/driver/waitqueue/follower"
)

// queue is the network of a process between the server and what wakes its waiters, which is that of the driver for
// MongoDB: a Follower of one cursor on the hints. The queues themselves are in the server's records. The world's mu
// guards the fields.
type queue struct {
	*follower.Follower
	link   *link
	waits  map[string][]*wait // for the judge, and for wake-ups without a reason
	recent []hint             // those that a new cursor returns again
	cursor *cursor            // the open one, or nil
}

// wait is one call of Wake.
type wait struct {
	wake func(driver.Wakeup)
	from time.Duration
}

// hint wakes the waiter of a lock.
type hint struct {
	name string
	turn time.Duration
}

const (
	// cursorTimeout is how long a request for hints waits for an answer.
	cursorTimeout = 11 * time.Second
	// cursorAwait is how long the server holds a request for hints.
	cursorAwait = 30 * time.Second
	hintTimeout = time.Second
	recentHints = 4
	// mine is the only waiter of a process.
	mine = driver.WaiterID("the process")
)

func newQueue(l *link) *queue {
	q := &queue{link: l, waits: map[string][]*wait{}}
	random := newDice(l.w.plan.Seed, 6, uint64(l.p.index), uint64(l.p.number))
	q.Follower = follower.New(l.p.gone, follower.Source{
		Open: q.openCursor,
		Go: func(run func()) bool {
			go run() // it ends with the process
			return true
		},
	}, waitqueue.Settings{Random: func(d time.Duration) time.Duration { return random.upTo(d) - 1 }})
	return q
}

// wakeUp registers a waiter.
func (q *queue) wakeUp(name string, wake func(driver.Wakeup)) (stop func()) {
	w := q.link.w
	w.mu.Lock()
	one := &wait{wake, w.now()}
	q.waits[name] = append(q.waits[name], one)
	w.mu.Unlock()
	end := q.Wake(name, mine, wake)
	return func() {
		end()
		w.mu.Lock()
		defer w.mu.Unlock()
		q.waits[name] = slices.DeleteFunc(q.waits[name], func(o *wait) bool { return o == one })
		if len(q.waits[name]) == 0 {
			delete(q.waits, name)
		}
	}
}

// openFor reports whether the cursor has been open since a time. mu is held.
func (q *queue) openFor(since time.Duration) bool {
	opened := q.OpenSince()
	return q.cursor != nil && !opened.IsZero() && q.link.w.now()-time.Since(opened) < since
}

// cursor is an open cursor on the hints. The world's mu guards it, but for the channels.
type cursor struct {
	queue *queue
	hints []hint
	more  chan struct{} // has a value after a hint has come; capacity 1
	ended chan struct{} // closed when the connection is interrupted
}

// openCursor opens a cursor, if the network lets it.
func (q *queue) openCursor(ctx context.Context) (follower.Events, error) {
	w, p := q.link.w, q.link.p
	w.mu.Lock()
	latency := p.dice.upTo(2 * w.plan.Latency)
	w.mu.Unlock()
	if err := p.sleep(ctx, latency); err != nil {
		return nil, err
	}
	if err := p.awaitRunning(ctx); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch now := w.now(); {
	case p.closed:
		return nil, driver.ErrClosed
	case now < p.cutUntil || now < w.server.downUntil:
		return nil, errBackend
	}
	w.tracef(p.name, "follows hints")
	c := &cursor{queue: q, more: make(chan struct{}, 1), ended: make(chan struct{})}
	q.cursor = c
	for _, h := range q.recent { // they wake without a reason
		c.take(h)
	}
	return c, nil
}

// take has the process read a hint. mu is held.
func (c *cursor) take(h hint) {
	c.hints = append(c.hints, h)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// Next implements [follower.Events].
func (c *cursor) Next(ctx context.Context) error {
	w, p := c.queue.link.w, c.queue.link.p
	await := time.NewTimer(cursorAwait)
	defer await.Stop()
	select {
	case <-c.more:
	case <-await.C:
	case <-c.ended:
		return errReset
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.awaitRunning(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	hints := c.hints
	c.hints = nil
	for _, h := range hints {
		w.tracef(p.name, "is woken for %q, with turn %v", h.name, h.turn)
	}
	w.mu.Unlock()
	for _, h := range hints {
		c.queue.Event(h.name, mine, h.turn)
	}
	return nil
}

// Close implements [follower.Events].
func (c *cursor) Close() {
	c.queue.link.w.mu.Lock()
	defer c.queue.link.w.mu.Unlock()
	if c.queue.cursor == c {
		c.queue.cursor = nil
	}
}

// interrupt ends the cursor.
func (q *queue) interrupt() {
	if q.cursor != nil {
		close(q.cursor.ended)
		q.cursor = nil
	}
}

// wakeAll wakes every waiter, without a reason.
func (q *queue) wakeAll(up driver.Wakeup) {
	for _, name := range slices.Sorted(maps.Keys(q.waits)) {
		for _, one := range q.waits[name] {
			go one.wake(up)
		}
	}
}

// deliver delivers a hint, as the network and the faults let it.
func (q *queue) deliver(h hint) {
	w, p := q.link.w, q.link.p
	now := w.now()
	switch {
	case p.closed || q.cursor == nil:
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

// hear has a hint arrive on the cursor.
func (q *queue) hear(h hint) {
	if q.cursor != nil && !q.link.p.closed {
		q.cursor.take(h)
	}
}

// Leave implements [driver.Queue].
func (l *link) Leave(ctx context.Context, _ driver.WaiterID, names []string) error {
	return l.perform(ctx, "leave", names[0], driver.LeaseID{}, func() answer { return l.w.server.leave(l.p, names) }).err
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
func (l *link) sendHints(ctx context.Context, name string, waiters []woken) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	for _, one := range waiters {
		l.perform(ctx, "hint", name, driver.LeaseID{}, func() answer {
			l.w.server.hint(one.waiter, one.hint(name))
			return answer{}
		})
	}
}
