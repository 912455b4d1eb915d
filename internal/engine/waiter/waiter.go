// Package waiter decides what a caller that waits for a lock, or for any of its slots, does next: when
// it sends the next request, when it reads the record, and what it cleans up.
//
// A Waiter is a state machine. It starts no goroutine, reads no clock, sends nothing and has no mutex.
// Its methods are the events; each is given the time, and returns what to do now. [Waiter.Next] says
// which request is due next, and when. Lock drives a Waiter by its caller's goroutine, and a
// LeaseManager by its scheduler.
package waiter

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Env is what a Waiter needs besides its events.
type Env interface {
	NewID() driver.LeaseID
	// Random returns a duration from 0 up to d, excluding d, which is more than 0.
	Random(d time.Duration) time.Duration
	// See notes the holder of a slot, whose record was read just now, and StuckAt returns when that
	// holder's time will be over by this process's elapsed time, unless it renews.
	See(slot int, holder driver.Record)
	StuckAt(slot int) time.Duration
	// RefreshRounds is in how many rounds, one at each poll interval, this process refreshes its
	// positions in the backend's queues.
	RefreshRounds() int64
	// Crowded reports whether so many waiters of this process were woken that reading their records,
	// which takes one call, is better than a request for each.
	Crowded(now time.Duration) bool
}

// Settings are those of the lock's options that matter to a waiter.
type Settings struct {
	timing.Timing
	Poll        time.Duration // between the requests of a waiter that nothing wakes
	WatchedPoll time.Duration // the same, while the backend wakes it
	PollSet     bool          // by the user: else the interval adapts to how the lock has behaved
}

// Traits are what the backend can do, and who the caller is.
type Traits struct {
	Reads   bool          // the records of many names can be read in one call
	Rereads bool          // a read that has failed is repeated, not replaced by a request: there are thousands of waiters
	Queue   bool          // the backend has a queue, and wakes the waiters in it
	Turn    time.Duration // of one waiter of a queue, also of other processes' queue; see driver.Info
	Shared  bool          // the caller may join others that share the lock
}

// Waiter is the state of one caller. Init must be called first.
type Waiter struct {
	env      Env
	traits   Traits
	settings Settings
	slots    []slot
	one      [1]slot // for a lock without slots
	first    int     // the slot that is asked first, of several that are due

	retryAt     time.Duration // nothing is sent before: a request has failed, or others go first
	failedReads int           // in a row
	waits       bool          // it does not only try: wake-ups and reads come as well
	left        bool
	notice      notice
}

// slot is what is known of one slot, and what is planned for it.
type slot struct {
	id      driver.LeaseID // of the requests
	inDoubt InDoubt        // requests with that ID

	refused    bool          // a request or a read has shown a holder
	seenAt     time.Duration // when one last did
	holder     driver.Record // as last seen
	stuckAt    time.Duration // when its time is over by this process's elapsed time
	overdue    int           // refusals in a row after the holder's time should have ended
	identified bool          // a holder was reported
	owner      string        // of the reported holder
	ownerToken uint64
	token      uint64        // the latest that was seen of a holder, or 0
	heldSince  time.Duration // since when that holder was seen
	position   int           // in the queue, as last seen; 0: none
	lasts      time.Duration // of the position, from the latest request
	reserved   bool          // the latest refusal was for other waiters, not for a holder

	own      bool          // this process holds the slot
	watching bool          // releases are reported
	deaf     bool          // they are not: that was reported last
	polled   bool          // the latest request may have been sent while that was so: then nothing wakes its position
	asking   bool          // a request is under way
	askedAt  time.Duration // when the latest request was sent
	failed   bool          // the latest request ended neither in a grant nor in a refusal
	failures int           // such requests in a row
	damaged  int           // the same, where the failure concerned this slot alone
	retryAt  time.Duration // nothing is sent for this slot before, after such a failure

	planned time.Duration // when a request is due by what is known of the holder
	called  time.Duration // since when a wake-up, or a read that has shown no holder, wants a request; or Never
	turn    time.Duration // when the announced turn begins, or Never
	read    read
	missed  missed
}

// read is the planned read of a slot's record.
type read struct {
	number  int  // of the latest; only its result counts
	planned bool // and not answered
	urgent  bool // a wake-up wants it
}

// missed is a wake-up without a time that came while a request or a read was under way. What was under
// way may return the state before it.
type missed struct{ any, first bool }

// Kind says what an [Action] is.
type Kind uint8

// The kinds of actions.
const (
	Read     Kind = iota // read the record of the slot at a time; the result goes to Waiter.Read
	DropRead             // the planned one: its result no longer counts
	CleanUp              // release with an ID until a time; it is not used again
	Report               // report the holder to observers
)

// Action is what the caller of an event does at once.
type Action struct {
	Kind   Kind
	Slot   int
	At     time.Duration  // Read: when; CleanUp: until when
	Number int            // of the Read
	ID     driver.LeaseID // CleanUp
	Owner  string         // Report; empty with token 0 if only the fact is known that there is a holder
	Token  uint64
}

// Init makes a Waiter for a lock with n slots, whose requests are due from the beginning.
func (w *Waiter) Init(now time.Duration, env Env, s Settings, t Traits, n int) {
	w.env, w.settings, w.traits, w.slots = env, s, t, w.one[:]
	if n > 1 {
		w.slots = make([]slot, n)
		w.first = int(env.Random(time.Duration(n))) // so that processes do not compete for the same slot
	}
	for i := range w.slots {
		w.slots[i].id, w.slots[i].called, w.slots[i].turn = env.NewID(), Never, Never
	}
	w.Start(now) // not at zero: a clock may be below that
	w.notice.began, w.notice.next = now, now+noticeAfter
}

// Start makes a request for every slot due at a time, and none sooner, whatever came before.
func (w *Waiter) Start(at time.Duration) {
	w.retryAt, w.left = at, false
	for i := range w.slots {
		w.slots[i].planned, w.slots[i].retryAt = at, at
	}
}

// Join says that the caller waits until Leave, and does not only try. Its requests enter the backend's
// queue, if there is one; queued reports that. A waiter for one of several slots has no position: one
// that was granted a slot would still have its positions in the queues of the others.
func (w *Waiter) Join() (queued bool) {
	w.waits = true
	return w.queued()
}

// single reports whether the caller waits for a lock without slots.
func (w *Waiter) single() bool { return w.waits && len(w.slots) == 1 }

func (w *Waiter) queued() bool { return w.single() && w.traits.Queue }

// Own says which slots this process holds. They are not asked for until SlotFreed, unless there are no
// others.
func (w *Waiter) Own(now time.Duration, held []int) (actions []Action) {
	ours, others := make([]bool, len(w.slots)), len(w.slots)
	for _, slot := range held {
		if slot < len(ours) {
			ours[slot] = true
			others--
		}
	}
	for i := range w.slots {
		s, own := &w.slots[i], ours[i] && others > 0
		if s.own && !own {
			s.called = now
		}
		if s.own = own; own {
			actions = w.dropRead(i, actions)
		}
	}
	return actions
}

// Next returns the slot whose request is due first, and when. Of several that are due at one time, it
// is a random one, but slots whose latest request failed come last, so that one damaged record does not
// keep callers from the other slots. If no request will be due, the time is Never.
func (w *Waiter) Next() (slot int, at time.Duration) {
	at = Never
	for i := range w.slots {
		k := (w.first + i) % len(w.slots)
		due := w.dueAt(k)
		if due < at || due == at && due < Never && w.slots[slot].failed && !w.slots[k].failed {
			slot, at = k, due
		}
	}
	return slot, at
}

// Due lists the slots whose requests are due.
func (w *Waiter) Due(now time.Duration) (due []int) {
	for k := range w.slots {
		if w.dueAt(k) <= now {
			due = append(due, k)
		}
	}
	return due
}

// dueAt is when the request for a slot is due.
func (w *Waiter) dueAt(k int) time.Duration {
	s := &w.slots[k]
	if w.left || s.asking || s.own {
		return Never
	}
	return max(min(s.planned, s.called, s.turn), w.notBefore(s))
}

// notBefore is until when nothing is sent for a slot, whatever wakes the caller.
func (w *Waiter) notBefore(s *slot) time.Duration { return max(w.retryAt, s.retryAt) }

// Retrying reports whether the next request follows one that failed.
func (w *Waiter) Retrying() bool {
	slot, _ := w.Next()
	return w.slots[slot].failures > 0
}

// Refused reports whether a request for the slot was refused, or a read has shown a holder.
func (w *Waiter) Refused(slot int) bool { return w.slots[slot].refused }

// Send says that a request for a slot is sent now. It returns the request's ID, and for how long its
// position in the backend's queue lasts; 0 means that it enters none. Answered must follow.
func (w *Waiter) Send(now time.Duration, slot int) (id driver.LeaseID, queueFor time.Duration, actions []Action) {
	s := &w.slots[slot]
	s.asking, s.askedAt, s.missed, s.called, s.polled = true, now, missed{}, Never, s.deaf
	if s.turn <= now { // a later one is kept
		s.turn = Never
	}
	if w.queued() || w.besideQueue(s) || w.single() && s.position > 0 { // a grant ends the position
		queueFor = w.queueFor()
	}
	s.lasts = queueFor
	return s.id, queueFor, w.dropRead(slot, nil)
}

// InDoubt says until when requests with the slot's ID may keep the lock taken.
func (w *Waiter) InDoubt(slot int) InDoubt { return w.slots[slot].inDoubt }

// Leave ends the wait. granted is the slot that was granted, or -1. Every request in doubt, but those
// for that slot, is cleaned up: it may be granted although its reply was lost. No request may be under way. Start begins another wait.
func (w *Waiter) Leave(granted int) (actions []Action) {
	w.left, w.waits = true, false
	for i := range w.slots {
		actions = w.dropRead(i, actions)
		if i != granted {
			actions = w.abandon(i, actions)
		}
	}
	return actions
}
