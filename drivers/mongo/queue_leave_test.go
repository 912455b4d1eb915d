package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A waiter gives up, and the next one of its process sends its request at once. The command that
// leaves the queue must not leave that one without a position.
func TestNextWaiterKeepsAPosition(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	c, l := newProcess(t, base, hintsOnly) // a poll would mend what is lost
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
		time.Sleep(2 * waitqueue.LeaveDelay) // the position is given up then, unless the next waiter has entered
		eventually(t, "the next waiter has a position", func() bool {
			return positionOf(t, l, name) > 0
		})
		second()
		awaitEmptyQueue(t, other, name)
	}
}

func awaitEmptyQueue(t *testing.T, l *Locker, name string) {
	t.Helper()
	eventually(t, "the queue is empty", func() bool {
		r, err := l.Inspect(bounded(t), name)
		return err == nil && r.Waiters == 0
	})
}

// A caller's time is over while its first request is on the way, which enters the queue later. The
// position is given up, so that it does not take the hints of others.
func TestPositionOfAnUnansweredRequest(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	acquire(t, other, longRequest("job", "holder"))
	dialer := newDelayingDialer()
	c, _ := newProcess(t, through(dialer.client(t), base))
	err := dialer.callDelayed(t, func(ctx context.Context) error {
		_, err := c.Lock(ctx, "job")
		return err
	}, "findAndModify", "queueFor")
	if err == nil {
		t.Fatal("the lock was granted although another holds it")
	}
	dialer.deliver(t)
	awaitEmptyQueue(t, other, "job")
}

// A TryLock, whose reply shows no position, does not make the process forget the one that it has.
func TestTryLockKeepsThePositionKnown(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	other := newTestLocker(t, base)
	c, l := newProcess(t, base, hintsOnly) // a poll would mend what is lost
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
	awaitEmptyQueue(t, other, "job")
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
	c, l := newProcess(t, base, hintsOnly) // a poll would mend what is lost
	lockSoon(t, c, "job")
	eventually(t, "the waiter has the only position", func() bool {
		return positionOf(t, l, "job") == 1 && len(storedQueue(t, base, "job")) == 1
	})
}

// The answer of a release is lost. The release that is sent again wakes the waiter.
func TestReleaseSentAgainWakesTheWaiter(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	dialer := newDelayingDialer()
	holder, _ := newProcess(t, through(dialer.client(t), base))
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
