package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A waiter whose position is gone, with the record or because it was slow, gets another one.
func TestWaiterEntersTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", 24*time.Hour)
		c, f := process(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _, _ = c.Lock(ctx, "job") }()
		time.Sleep(time.Minute)
		position := func() int {
			at, err := f.Position(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		if position() != 1 {
			t.Fatalf("position %d", position())
		}
		store.Remove("job")
		deadHolder(t, store, "job", 24*time.Hour)
		time.Sleep(time.Minute)
		if position() != 1 {
			t.Errorf("position %d a minute after the record was removed", position())
		}
		cancel()
		<-done
	})
}

// noPosition is a Locker that cannot enter the queue, until it can.
type noPosition struct {
	*locktest.Faulty
	cannot atomic.Bool
}

func (n *noPosition) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if n.cannot.Load() {
		req.QueueFor = 0
	}
	return n.Faulty.TryAcquire(ctx, req)
}

// A waiter that could not enter the queue at first enters it later, although the lock is always held.
func TestWaiterEntersTheQueueLate(t *testing.T) {
	for _, others := range []int{0, 40} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			_, f := process(t, store)
			n := &noPosition{Faulty: f}
			n.cannot.Store(true)
			c := locktest.NewClient(t, n)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range others + 1 {
				deadHolder(t, store, fmt.Sprint("job-", i), 24*time.Hour)
				wg.Go(func() { _, _ = c.Lock(ctx, fmt.Sprint("job-", i)) })
			}
			time.Sleep(5 * time.Minute)
			n.cannot.Store(false)
			time.Sleep(5 * time.Minute)
			if at, err := f.Position(t.Context(), "job-0"); err != nil || at != 1 {
				t.Errorf("position %d with %d other names, %v", at, others, err)
			}
			cancel()
			wg.Wait()
		})
	}
}

// The record of a lock is removed while a waiter has a position in its queue, which goes with it.
func TestRemovedRecordWakesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		c, _ := process(t, store)
		got := make(chan *holdfast.Hold, 1)
		go func() {
			if h, err := c.Lock(t.Context(), "job"); err == nil {
				got <- h
			}
		}()
		time.Sleep(25 * time.Second)
		store.Remove("job")
		removed := time.Now()
		h := <-got
		if took := time.Since(removed); took > time.Second {
			t.Errorf("the lock was granted %v after the removal", took)
		}
		locktest.Release(t, h)
	})
}
