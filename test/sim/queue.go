package sim

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// queue is the network of a process between the server and what wakes its waiters, which is that of the driver for
// MongoDB: a Follower of one cursor on the hints. The queues themselves are in the server's records. The world's mu
// guards the fields.
type queue struct {
	*waitqueue.Follower
	link   *link
	waits  []*wait // for the judge, and for wake-ups without a reason
	recent []hint  // those that a new cursor returns again
	cursor *cursor // the open one, or nil
}

// asking is a waiter and the lock that it asks for.
type asking struct {
	name   string
	waiter driver.WaiterID
}

// wait is one call of Wake.
type wait struct {
	asking
	from time.Duration
}

// hint wakes the waiter of a lock.
type hint struct {
	name, waiter string
	turn         time.Duration
}

const (
	// cursorTimeout is how long the process waits for the answer to a request for hints after it was due.
	cursorTimeout = 10 * time.Second
	// cursorAwait is how long the server holds a request for hints.
	cursorAwait = 30 * time.Second
	recentHints = 4
)

func newQueue(l *link) *queue {
	q := &queue{link: l}
	random := newDice(l.w.plan.Seed, 6, uint64(l.p.index), uint64(l.p.number))
	q.Follower = waitqueue.NewFollower(l.p.gone, waitqueue.Source{
		Open: q.open,
		Go: func(run func()) bool {
			go run() // it ends with the process
			return true
		},
	}, waitqueue.Settings{Random: func(d time.Duration) time.Duration { return random.upTo(d) - 1 }})
	return q
}

// wakeUp registers a waiter.
func (q *queue) wakeUp(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	w := q.link.w
	w.mu.Lock()
	one := &wait{asking{name, waiter}, w.now()}
	q.waits = append(q.waits, one)
	w.mu.Unlock()
	end := q.Wake(name, waiter, wake)
	return func() {
		end()
		w.mu.Lock()
		defer w.mu.Unlock()
		q.waits = slices.DeleteFunc(q.waits, func(o *wait) bool { return o == one })
	}
}

// waitsSince reports whether a waiter has been waiting for a lock since a time, and the cursor has been open for a while
// before. mu is held.
func (q *queue) waitsSince(name, waiter string, since time.Duration) bool {
	opened := q.OpenSince()
	return q.cursor != nil && !opened.IsZero() && q.link.w.now()-time.Since(opened) < since-settled/2 &&
		slices.ContainsFunc(q.waits, func(o *wait) bool { return o.asking == asking{name, driver.WaiterID(waiter)} && o.from < since })
}

// cursor is an open cursor on the hints.
type cursor struct {
	queue *queue
	hints chan hint     // on their way; as many as the server keeps
	ended chan struct{} // closed when the connection is interrupted
}

// open opens a cursor, if the network lets it.
func (q *queue) open(ctx context.Context) (waitqueue.Events, error) {
	ctx, cancel := context.WithTimeout(ctx, cursorTimeout)
	defer cancel()
	c := &cursor{queue: q, hints: make(chan hint, 100), ended: make(chan struct{})}
	return c, q.link.perform(ctx, "follow hints", "", driver.LeaseID{}, func() answer {
		if !q.link.w.server.answerLost {
			q.cursor = c
			for _, h := range q.recent { // they wake without a reason
				q.hear(h)
			}
		}
		return answer{}
	}).err
}

// Next implements [waitqueue.Events].
func (c *cursor) Next(ctx context.Context) error {
	w, p := c.queue.link.w, c.queue.link.p
	await := time.NewTimer(cursorAwait)
	defer await.Stop()
	select {
	case h := <-c.hints:
		if err := p.awaitRunning(ctx); err != nil {
			return err
		}
		w.note(h.waiter, "is woken for %q, with turn %v", h.name, h.turn)
		c.queue.Event(h.name, driver.WaiterID(h.waiter), h.turn)
		return nil
	case <-await.C:
		return p.awaitRunning(ctx)
	case <-c.ended:
		return errReset
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements [waitqueue.Events].
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
	if up.Kind != driver.MayBeFree {
		go q.Gap()
		return
	}
	for _, one := range q.waits {
		go q.Event(one.name, one.waiter, up.After)
	}
}

// deliver delivers a hint, as the network and the faults let it.
func (q *queue) deliver(h hint) {
	w, p := q.link.w, q.link.p
	now := w.now()
	if now < p.deafUntil && p.garbled == 0 {
		w.tracef(p.name, "a hint for %q is lost", h.name)
		return
	}
	q.recent = append(q.recent, h)
	q.recent = q.recent[max(len(q.recent)-recentHints, 0):]
	switch {
	case now < p.cutUntil: // the connection survives a short cut
		w.after(p.cutUntil-now, func() { q.hear(h) })
	case now < p.deafUntil:
		for range p.dice.IntN(3) { // lost, late or doubled
			w.after(p.dice.upTo(min(p.garbled, w.plan.Heal-now)), func() { q.hear(h) })
		}
	default:
		q.hear(h)
	}
}

// hear has a hint arrive on the cursor, if there is one and room for it.
func (q *queue) hear(h hint) {
	if q.cursor == nil {
		return
	}
	select {
	case q.cursor.hints <- h:
	default:
	}
}

// Leave implements [driver.Queue].
func (l *link) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	me := string(l.known(waiter))
	return l.perform(ctx, "leave", names[0], driver.LeaseID{}, func() answer { return l.w.server.leave(me, names) }).err
}
