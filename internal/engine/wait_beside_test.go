package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Two processes wait in the queue again and again. A third one, which nothing wakes, is served as well.
func TestPollerBesideAQueueIsServed(t *testing.T) {
	for _, batchReads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			poller := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
				return locktest.Fault{Delay: 2 * time.Millisecond}
			})
			poller.NoBatchReads = !batchReads
			clients := []*holdfast.Client{locktest.NewClient(t, poller)}
			for range 2 {
				c, _ := process(t, store)
				clients = append(clients, c)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			grants := make([]int, len(clients))
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					for h, err := c.Lock(ctx, "job"); err == nil; h, err = c.Lock(ctx, "job") {
						grants[i]++
						time.Sleep(30 * time.Millisecond)
						_ = h.Release(context.WithoutCancel(ctx))
					}
				})
			}
			wg.Wait()
			if all := grants[0] + grants[1] + grants[2]; grants[0] < all/10 || all < 600 {
				t.Errorf("the poller was granted the lock %d times, the others %v times", grants[0], grants[1:])
			}
			if n := poller.Count(locktest.OpAcquire) + poller.Count(locktest.OpInspect); n > 30*60 {
				t.Errorf("%d requests in a minute", n)
			}
		})
	}
}

// The wake-ups that are no turns. beganBefore is since before the latest request.
var (
	began       = driver.Wakeup{Kind: driver.WakingBegan}
	beganBefore = driver.Wakeup{Kind: driver.WakingBegan, Ago: time.Hour}
	ended       = driver.Wakeup{Kind: driver.WakingEnded}
)

// endingQueue is a Queue that the test lets say whether it wakes the waiter.
type endingQueue struct {
	*locktest.CallGauge
	locktest.Unordered
	calls chan func(driver.Wakeup)
	mu    sync.Mutex
	asked int
}

func (q *endingQueue) Capabilities() driver.Capabilities {
	return driver.Capabilities{Waker: q, Queue: q}
}

func (q *endingQueue) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	q.calls <- wake
	return func() {}
}

func (q *endingQueue) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	q.mu.Lock()
	q.asked++
	q.mu.Unlock()
	return q.CallGauge.TryAcquire(ctx, req)
}

func (q *endingQueue) take() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.asked
	q.asked = 0
	return n
}

// waitInEndingQueue has a client wait until the test's end. It returns the Queue and what wakes the waiter.
func waitInEndingQueue(t *testing.T) (q *endingQueue, wake func(driver.Wakeup)) {
	store := memory.NewStore()
	locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job", holdfast.WithTTL(time.Hour))
	q = &endingQueue{CallGauge: locktest.NewCallGauge(store.Locker(), 0), calls: make(chan func(driver.Wakeup), 1)}
	c := locktest.NewClient(t, q)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	wg.Go(func() { _, _ = c.Lock(ctx, "job") })
	return q, <-q.calls
}

// A waiter polls rarely only as long as the Queue wakes it.
func TestWaiterPollsWhenWakingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, wake := waitInEndingQueue(t)
		for _, test := range []struct {
			what        string
			calls       []driver.Wakeup
			least, most int
		}{
			{"it wakes the waiter", []driver.Wakeup{beganBefore}, 2, 6},
			{"it does not", []driver.Wakeup{ended}, 15, 300},
			{"it does again", []driver.Wakeup{began}, 2, 6},
			{"it has woken it, and does not any more", []driver.Wakeup{began, ended}, 15, 300},
			{"it does not, and the waiter's turn came", []driver.Wakeup{ended, {}}, 15, 300},
			{"it did not, and wakes it again", []driver.Wakeup{ended, beganBefore}, 2, 6},
		} {
			q.take()
			for _, up := range test.calls {
				wake(up)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := q.take(); n < test.least || n > test.most {
				t.Errorf("%s: %d requests in a minute, want %d to %d", test.what, n, test.least, test.most)
			}
		}
	})
}
