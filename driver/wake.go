package driver

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// WaiterID stands for one waiter in the queues of a backend, whatever locks it waits for. A Client has one
// for its callers of each [Mode], which form a queue of their own. A Locker that stands for many clients, such as a
// gateway, has many. The ID means nothing to other Lockers. It is not a secret: others that wait may see it. It is valid UTF-8 of at most
// [MaxWaiterID] bytes, without a zero byte, and empty for a caller that has no position.
type WaiterID string

// MaxWaiterID is how long a [WaiterID] may be, in bytes.
const MaxWaiterID = 64

// NewWaiterID returns an ID that no other waiter has.
func NewWaiterID() WaiterID { return WaiterID(rand.Text()) }

// Wakeup is what a [Waker] reports. The zero Wakeup says that the lock may be free.
type Wakeup struct {
	Kind WakeupKind
	// After is how long the waiter lets others go first, from now. Only MayBeFree has it.
	After time.Duration
	// Ago is how long ago that was which is reported, if the report waited for a call of Wake: since when
	// waking is in effect, or when the lock became free. A waiter whose last request was sent after that
	// knows it already, and has missed nothing.
	Ago time.Duration
}

// WakeupKind says what a [Wakeup] reports.
type WakeupKind uint8

const (
	// MayBeFree: the lock may be free. The waiter sends a request After from now, or reads first.
	MayBeFree WakeupKind = iota
	// WakingBegan: each release is reported from now on, or since Ago, even if that was before the call of Wake. Earlier
	// releases may have been missed.
	WakingBegan
	// WakingEnded: releases are not reported, until WakingBegan is. The waiter polls. A request that it sends meanwhile need not give
	// it a position, or gives it one that nothing wakes: it sends another when waking has begun.
	WakingEnded
)

// Validate checks the Kind. The error is an *[InvalidError]. A client calls it, and polls where a driver reports another.
func (u Wakeup) Validate() error {
	if u.Kind > WakingEnded {
		return Invalid("Wakeup.Kind", strconv.Itoa(int(u.Kind)), "MayBeFree, WakingBegan or WakingEnded")
	}
	return nil
}

// Waker wakes waiters, so that they need not poll.
type Waker interface {
	// Wake calls wake when the lock of a name may be free, until stop is called. Wake itself returns at once,
	// without I/O.
	//
	// If the Locker has a [Queue] and waiter is not empty, only the first waiters of the queue are woken. Their
	// requests have the same [Request.Waiter]. Otherwise each release and each removal wakes; without a Queue
	// the waiter does not matter. [Info].WakesOnlyQueue says that an empty waiter is not woken at all.
	//
	// wake is called
	//
	//   - with MayBeFree when the lock may have become free by a release or a removal. The first of a queue
	//     come at once, the others after their turn. They send requests: a read may still return the record
	//     of before. Of many without a position most read first, so a read that begins after its call must not;
	//   - with WakingBegan when waking has come into effect, and again when it does so after a gap;
	//   - with WakingEnded when it has ended, perhaps for long, and when it turns out to be impossible.
	//
	// Expiry need not call wake, and calls without a reason are allowed. Calls can be lost. Callers therefore
	// poll as well, and waiters in a queue refresh their position.
	//
	// Any goroutine may call wake, several of them at a time, and so may Wake itself before it returns.
	// The caller of Wake must hold no mutex that wake takes. wake must return at once and must not call the
	// Locker, but it may call stop.
	//
	// stop may be called more than once. It does not wait: a call of wake that is under way may end after stop
	// has returned. It leaves the waiter's position alone; see [Queue].
	Wake(name string, waiter WaiterID, wake func(Wakeup)) (stop func())
}

// Queue orders the waiters of several processes, and the [Waker] wakes the first of them when the lock becomes
// free. A request with [Request.QueueFor] that is refused gives its [Request.Waiter] a position in the queue of
// its name: behind the waiters that are there already, or the one that it has. A waiter has one position
// for each name, so it should send one request at a time.
//
// A free lock is reserved for the waiters in their order. Position n may take it n-1 turns ([Info].Turn, [TurnAt]) after
// it became free, by the backend's clock: the first at once, the second a moment later. A request
// without a position comes behind all of them, and after [MaxTurns] at the latest anybody may take
// the lock. With an empty queue nothing is reserved. Replace ignores the reservation.
//
// A grant removes the waiter from the queue. If the lock was free, it also removes the waiters that
// were woken, had a lower position and did not come: at most the first two ([WokenWaiters]), and only
// the first of a queue of more than [LongQueue].
// A position that is not refreshed by another request ends after QueueFor. So a waiter that died in the
// queue costs the others one turn, not more.
//
// The order is a service and no promise. It is lost with the record, for a waiter that is slower
// than a turn, and if the backend's clock steps. None of that affects who may hold the lock.
type Queue interface {
	// Leave gives up the waiter's positions in the queues of names. Those in which it has none are left
	// alone, and a name may occur twice. It has as few calls of the backend as the backend allows. A
	// request of the waiter that arrives later enters the queue again. After an error some positions may
	// remain, which end by themselves; the caller need not repeat it. The [OpError] has no name.
	Leave(ctx context.Context, waiter WaiterID, names []string) error
}
