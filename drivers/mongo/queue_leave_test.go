package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

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
		eventually(t, "the next waiter has a position that stays", func() bool {
			for range 3 { // leaving takes a moment
				if r, err := l.Inspect(bounded(t), name); err != nil || r.Position == 0 {
					return false
				}
				time.Sleep(leaveDelay)
			}
			return true
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
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	dialer.delayNext("findAndModify", "queueFor")
	if _, err := c.Lock(ctx, "job"); err == nil {
		t.Fatal("the lock was granted although another holds it")
	}
	dialer.deliver(t)
	eventually(t, "the queue is empty", func() bool {
		r, err := other.Inspect(bounded(t), "job")
		return err == nil && r.Waiters == 0
	})
}
