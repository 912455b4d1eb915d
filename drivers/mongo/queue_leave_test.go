package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// soon waits for a condition for a time in which no waiter polls: a poll would mend what is lost.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not before the next poll: %s", what)
		}
	}
}

// A waiter gives up, and the next one of its process sends its request at once. The command that
// leaves the queue must not leave that one without a position.
func TestNextWaiterKeepsAPosition(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	c, l := newProcess(t, base)
	for i := range 10 {
		name := fmt.Sprintf("job%d", i)
		acquire(t, other, longRequest(name, "holder of "+name))
		lock := func() (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := c.Lock(ctx, name); err == nil {
					t.Error("the lock was granted although another holds it")
				}
			}()
			return func() { cancel(); <-done }
		}
		first := lock()
		awaitFollowed(t, l, name)
		second := lock()
		first()
		time.Sleep(2 * leaveDelay) // the position is given up then, unless the next waiter has entered
		soon(t, "the next waiter has a position", func() bool {
			r, err := l.Inspect(bounded(t), name)
			return err == nil && r.Position > 0
		})
		second()
		eventually(t, "the queue is empty", func() bool {
			r, err := other.Inspect(bounded(t), name)
			return err == nil && r.Waiters == 0
		})
	}
}

// A caller's time is over while its first request is on the way, which enters the queue later. The
// position is given up, so that it does not take the hints of others.
func TestPositionOfAnUnansweredRequest(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	acquire(t, other, longRequest("job", "holder"))
	dialer := newDelayingDialer()
	c, _ := newProcess(t, dialer.client(t).Database(base.Database().Name()).Collection(base.Name()))
	err := dialer.callDelayed(t, func(ctx context.Context) error {
		_, err := c.Lock(ctx, "job")
		return err
	}, "findAndModify", "queueFor")
	if err == nil {
		t.Fatal("the lock was granted although another holds it")
	}
	dialer.deliver(t)
	eventually(t, "the queue is empty", func() bool {
		r, err := other.Inspect(bounded(t), "job")
		return err == nil && r.Waiters == 0
	})
}

// A TryLock, whose reply shows no position, does not make the process forget the one that it has.
func TestTryLockKeepsThePositionKnown(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	c, l := newProcess(t, base)
	acquire(t, other, longRequest("job", "holder"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _, _ = c.Lock(ctx, "job") }()
	awaitFollowed(t, l, "job")
	if _, err := l.TryAcquire(bounded(t), longRequest("job", "another")); err == nil {
		t.Fatal("the lock was granted although another holds it")
	}
	cancel()
	<-done
	soon(t, "the queue is empty", func() bool {
		r, err := other.Inspect(bounded(t), "job")
		return err == nil && r.Waiters == 0
	})
}

// The command that leaves a queue crosses the request of the next waiter, whose reply is still on the way.
// That waiter is woken when it begins to wait, since it may have lost its position.
func TestWaiterIsWokenAfterItsRequestCrossedTheLeave(t *testing.T) {
	t.Parallel()
	q := newSilentQueue(t)
	sent := time.Now()
	e := q.noteRequest("job", sent)
	q.reenter(list{"job"})
	q.noteReply("job", e, sent, false, 1)
	turn := driver.NothingMissed
	q.Wait("job", func(with time.Duration) { turn = with })()
	if turn != 0 {
		t.Errorf("the waiter was woken with turn %v, want 0", turn)
	}
}

// A wait begins just after another has seen that nobody waits any more, and leaves the queue. The new
// waiter asks again, since it loses the position that it counts on.
func TestWaiterIsWokenAfterAnotherLeaves(t *testing.T) {
	t.Parallel()
	q := newSilentQueue(t)
	sent := time.Now()
	q.noteReply("job", q.noteRequest("job", sent), sent, false, 1)
	var turns []time.Duration
	stop := q.Wait("job", func(with time.Duration) { turns = append(turns, with) })
	defer stop()
	q.leave("job")
	if len(turns) != 2 || turns[1] != 0 {
		t.Errorf("the waiter was woken with turns %v, want one more wake with 0", turns)
	}
}

// newSilentQueue returns a queue whose cursor is open and wakes nobody.
func newSilentQueue(t *testing.T) *queue {
	t.Helper()
	l := newTestLocker(t, mongotest.Collection(t))
	q := newQueue(l.onPrimary, l.hints, l.config)
	q.watcher.source.open = func(context.Context) (eventCursor, error) { return silentCursor{}, nil }
	t.Cleanup(func() { q.close(context.WithoutCancel(t.Context())) })
	opened := make(chan time.Duration, 1)
	q.Wait("another", func(turn time.Duration) { opened <- turn })
	<-opened
	return q
}

// silentCursor has no events and does not fail.
type silentCursor struct{}

func (silentCursor) ID() int64                   { return 1 }
func (silentCursor) Err() error                  { return nil }
func (silentCursor) Close(context.Context) error { return nil }
func (silentCursor) event() bson.Raw             { return nil }

func (silentCursor) TryNext(ctx context.Context, _ time.Duration) bool {
	<-ctx.Done()
	return false
}

// A TryLock is granted the lock before a waiter of the same process enters the queue, and its reply
// arrives later. The process does not forget the position.
func TestGrantOfTryLockKeepsThePositionKnown(t *testing.T) {
	t.Parallel()
	_, l := newProcess(t, mongotest.Collection(t))
	sent := time.Now()
	l.queue.noteReply("job", l.queue.noteRequest("job", sent), sent, false, 1)
	acquire(t, l, longRequest("job", "holder"))
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	if _, in := l.queue.entered["job"]; !in {
		t.Error("the process has forgotten its position")
	}
}

// A request whose caller has given up enters the queue late, when another request of the process has been
// granted the lock. The process leaves the queue all the same, also if another waiter has come meanwhile, or
// if the other request was granted the lock at once, so that nobody waits.
func TestLateRequestLeavesNoPosition(t *testing.T) {
	t.Parallel()
	const alone, anotherWaiter, noWaiter = "alone", "another waiter", "no waiter"
	for _, meanwhile := range []string{alone, anotherWaiter, noWaiter} {
		base := mongotest.Collection(t)
		l, other := newTestLocker(t, base), newTestLocker(t, base)
		q := l.queue
		wait := func() (stop func()) { return l.Capabilities().Queue.Wait("job", func(time.Duration) {}) }
		stop := wait()
		sent := time.Now()
		q.noteRequest("job", sent) // it never gets an answer
		holdOff := func() {        // no goroutine leaves the queue meanwhile: the test does it below
			q.mu.Lock()
			defer q.mu.Unlock()
			q.sending = true
		}
		if meanwhile != alone {
			holdOff()
			stop()
		}
		if meanwhile == anotherWaiter {
			stop = wait()
		}
		second := q.noteRequest("job", sent)
		if meanwhile != alone {
			if names := q.takeLeaving(); len(names) > 0 { // as leaveQueues does a moment later
				t.Fatalf("leaves the queues of %v, for which it waits", names)
			}
		}
		if meanwhile == noWaiter {
			holdOff()
		}
		q.noteReply("job", second, sent, true, 0)
		holder := acquire(t, other, longRequest("job", "holder"))
		late := longRequest("job", "late")
		late.QueueFor = time.Hour
		_, err := l.apply(bounded(t), "", late, true) // as if the first request arrived now
		if r, inspectErr := other.Inspect(bounded(t), "job"); err != nil || inspectErr != nil || r.Waiters != 1 {
			t.Fatalf("%d waiters, %v, %v", r.Waiters, err, inspectErr)
		}
		if meanwhile == noWaiter {
			q.leavings.Go(q.leaveQueues)
		} else {
			stop()
		}
		soon(t, "the queue is empty; meanwhile "+meanwhile, func() bool {
			r, err := other.Inspect(bounded(t), "job")
			return err == nil && r.Waiters == 0
		})
		if err := other.Release(bounded(t), holder); err != nil {
			t.Error(err)
		}
	}
}

// A queue that is full of dead waiters admits one that is alive.
func TestQueueFullOfDeadWaiters(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	acquire(t, other, longRequest("job", "holder"))
	var dead bson.A
	for i := range driver.MaxWaiters {
		dead = append(dead, bson.D{{Key: fieldWaiter, Value: fmt.Sprintf("dead %d", i)}, {Key: fieldUntil, Value: time.Now().Add(-time.Hour)}})
	}
	overwrite(t, base, "job", field(fieldQueue, dead), field(fieldReserve, driver.MaxTurn.Milliseconds()))
	c, l := newProcess(t, base)
	lockSoon(t, c, "job")
	soon(t, "the waiter has the only position", func() bool {
		r, err := l.Inspect(bounded(t), "job")
		return err == nil && r.Position == 1 && r.Waiters == 1
	})
}

// The answer of a release is lost. The release that is sent again wakes the waiter.
func TestReleaseSentAgainWakesTheWaiter(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	dialer := newDelayingDialer()
	holder, _ := newProcess(t, dialer.client(t).Database(base.Database().Name()).Collection(base.Name()))
	h := mustLock(t, holder, "job")
	c, l := newProcess(t, base, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	dialer.delayNext("findAndModify", "kid", "currentDate")
	released := make(chan error, 1)
	go func() { released <- h.Release(bounded(t)) }()
	dialer.deliver(t)
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	awaitHold(t, got, "by the release that was sent again")
}
