// Package waitqueue is the client's side of a queue and of a stream of wake-ups: what a process does in the
// queues of locks, and when it opens the stream that wakes its waiters.
//
// [Positions], [Stream] and [Watches] are state machines. They start no goroutine, read no clock, do no I/O and have no mutex.
// Their methods are the events; each is given the time, and returns what to do now. A [Follower] drives a Stream.
package waitqueue

import (
	"math"
	"time"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

const (
	// LeaveDelay is how long a position is kept after its last waiter has gone. The request of the next one often
	// follows at once, and finds the position.
	LeaveDelay = 100 * time.Millisecond
	// LeaveAgain is how long after leaving a queue it is left once more, if the outcome of a request was unknown, which may have
	// arrived in between, or if the call has failed.
	LeaveAgain = 10 * time.Second
	// LeaveTimeout limits each call that leaves queues.
	LeaveTimeout = 5 * time.Second
	// LeaveNames is how many queues one call leaves at most.
	LeaveNames = 500
)

// Positions are those that one waiter ID has in the queues of locks, or may have, and the callers that wait for
// the locks. When the last caller has gone, the queue is left, unless there can be no position: none was
// requested, or the only request was granted the lock.
//
// W stands for a caller that waits. The zero value is ready to use.
type Positions[W comparable] struct {
	names   map[string]*position[W]
	toLeave map[string]*position[W] // those with a leaveAt
	calls   int                     // names that calls under way leave
}

// position is what is known of one queue.
type position[W comparable] struct {
	waiters []W
	open    int           // requests that are under way, or whose outcome is unknown: each may still enter the queue
	may     bool          // there may be a position, also without them
	beside  bool          // a request got a position while another was under way, whose grant may be the earlier one
	leaveAt time.Duration // when to leave the queue, or 0
	leaving bool          // a call that leaves the queue is under way
	crossed bool          // a request was sent since that call began, so it may have removed the request's position
	left    bool          // the queue was left since the last caller began to wait
	again   bool          // a failed call is repeated, once
}

// Begin notes a caller that waits for a lock.
func (p *Positions[W]) Begin(name string, w W) {
	if p.names == nil {
		p.names = map[string]*position[W]{}
	}
	at := p.names[name]
	if at == nil {
		at = &position[W]{}
		p.names[name] = at
	}
	at.waiters, at.left, at.again = append(at.waiters, w), false, false
	p.plan(name, at, 0)
}

// Sent notes that a caller sends a request that enters the queue if it is refused. An outcome follows.
func (p *Positions[W]) Sent(name string) {
	if at := p.names[name]; at != nil {
		at.open++
		at.crossed = at.crossed || at.leaving
	}
}

// Granted notes that a request of a caller was granted the lock, which ended the position. An earlier request whose
// outcome is unknown may enter the queue after that, and so may the request of another caller, whose answer came first.
func (p *Positions[W]) Granted(name string) {
	if at := p.names[name]; at != nil {
		p.answered(name, at.may && at.beside)
	}
}

// Refused notes the position that a refused request has, or 0 if it has none. An earlier one may be left: a Locker that
// takes two locks can have a position for one of them, and be refused by the other.
func (p *Positions[W]) Refused(name string, n int) {
	if at := p.names[name]; at != nil {
		at.beside = at.beside || n > 0
		p.answered(name, at.may || n > 0)
	}
}

// Failed notes that a request has certainly not reached the queue. For a request whose outcome is unknown there is
// no event.
func (p *Positions[W]) Failed(name string) {
	if at := p.names[name]; at != nil {
		p.answered(name, at.may)
	}
}

func (p *Positions[W]) answered(name string, may bool) {
	if at := p.names[name]; at != nil {
		at.open, at.may = max(at.open-1, 0), may
		at.beside = at.beside && at.open > 0
	}
}

// End notes that a caller no longer waits.
func (p *Positions[W]) End(now time.Duration, name string, w W) {
	at := p.names[name]
	if at == nil {
		return
	}
	for i, other := range at.waiters {
		if other == w {
			at.waiters = append(at.waiters[:i], at.waiters[i+1:]...)
			break
		}
	}
	if len(at.waiters) == 0 {
		if at.may || at.open > 0 {
			p.plan(name, at, now+LeaveDelay)
		}
		p.tidy(name, at)
	}
}

// plan plans when to leave a queue; 0 means not.
func (p *Positions[W]) plan(name string, at *position[W], when time.Duration) {
	if at.leaveAt = when; when == 0 {
		delete(p.toLeave, name)
		return
	}
	if p.toLeave == nil {
		p.toLeave = map[string]*position[W]{}
	}
	p.toLeave[name] = at
}

// tidy forgets a name of which nothing is left to do.
func (p *Positions[W]) tidy(name string, at *position[W]) {
	if len(at.waiters) == 0 && at.leaveAt == 0 && !at.leaving {
		delete(p.names, name)
	}
}

// Due returns the names whose queues to leave now, at most [LeaveNames], and otherwise when there will be some,
// or Never. The caller leaves them with one call, and then calls Left. A process that is ending keeps no position for
// the next caller. It still waits [LeaveDelay] for a request that may be on the way, which would arrive after the call.
func (p *Positions[W]) Due(now time.Duration, ending bool) (names []string, next time.Duration) {
	next = Never
	for name, at := range p.toLeave {
		switch {
		case at.leaving:
		case at.leaveAt > now && (!ending || at.open > 0 && !at.left):
			next = min(next, at.leaveAt)
		case len(names) < LeaveNames:
			p.plan(name, at, 0)
			if at.left { // whatever was under way has arrived by now
				at.open = 0
			}
			at.leaving, at.crossed, at.left, at.may = true, false, true, false
			names = append(names, name)
			p.calls++
		}
	}
	return names, next
}

// Left notes that the call that leaves queues has returned, or was given up. One that has failed, for a reason that may have passed
// by then, is repeated once: a writer's position that remains keeps readers waiting. Left returns the callers that wait
// again and whose requests have crossed the call: they send another, which enters the queue again.
func (p *Positions[W]) Left(now time.Duration, names []string, failed, ending bool) (lost []W) {
	for _, name := range names {
		at := p.names[name]
		p.calls--
		at.leaving, at.may = false, at.may || failed
		switch {
		case at.crossed:
			lost = append(lost, at.waiters...)
		case len(at.waiters) == 0 && (at.open > 0 || failed && !at.again) && at.leaveAt == 0 && !ending:
			at.again = true
			p.plan(name, at, now+LeaveAgain)
		}
		p.tidy(name, at)
	}
	return lost
}

// LeftLate notes that a call which was given up, after which Left was called, has returned now. It may have removed the
// position of whoever waits: all these callers are returned, and send another request.
func (p *Positions[W]) LeftLate(names []string) (lost []W) {
	for _, name := range names {
		if at := p.names[name]; at != nil {
			lost = append(lost, at.waiters...)
		}
	}
	return lost
}

// Idle reports whether there is nothing to leave, and no call that does so is under way.
func (p *Positions[W]) Idle() bool { return len(p.toLeave) == 0 && p.calls == 0 }
