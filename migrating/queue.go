package migrating

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// Queue is the queue of an [Old] lock: what wakes its waiters, and lets them leave.
type Queue interface {
	driver.Waker
	driver.Queue
}

// queues has the queues of both locks. A waiter has a position in that of the lock which refused it.
// Without one it would come behind all waiters of programs that take only that lock.
type queues struct {
	locker   *Locker
	old, new Queue // nil: the backend has none
}

// queueOf makes one value of a backend's two capabilities, or nil.
func queueOf(c driver.Capabilities) Queue {
	if c.Queue == nil || c.Waker == nil {
		return nil
	}
	return struct {
		driver.Waker
		driver.Queue
	}{c.Waker, c.Queue}
}

// Leave implements [driver.Queue]: the waiter leaves the queues of both locks.
func (q queues) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	if err := q.locker.check(driver.ValidateLeave(waiter, names, q.locker.info.Limits)); err != nil {
		return opError("leave queues", "", err)
	}
	var old []string
	for _, name := range names {
		if oldName := q.locker.oldName(name); oldName != "" {
			old = append(old, oldName)
		}
	}
	var errs [2]error
	var calls sync.WaitGroup
	if q.old != nil && len(old) > 0 {
		calls.Go(func() { errs[0] = q.old.Leave(ctx, waiter, old) })
	}
	if q.new != nil {
		errs[1] = q.new.Leave(ctx, waiter, names)
	}
	calls.Wait()
	if errs[0] != nil && errs[1] != nil {
		return driver.Errorf("%w; %w", errs[0], errs[1])
	}
	return cmp.Or(errs[0], errs[1])
}

// Wake implements [driver.Waker]. It wakes nobody without a position: nothing reports the releases of both locks then.
func (q queues) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	oldName := q.locker.oldName(name)
	if oldName == "" && q.new != nil && waiter != "" {
		return q.new.Wake(name, waiter, wake)
	}
	w := newWaiting(wake)
	var stops []func()
	if q.old != nil && oldName != "" && waiter != "" {
		stops = append(stops, q.old.Wake(oldName, waiter, w.from()))
	}
	if q.new != nil && waiter != "" {
		stops = append(stops, q.new.Wake(name, waiter, w.from()))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// waiting is one call of Wake.
type waiting struct {
	wake    func(driver.Wakeup)
	mu      sync.Mutex
	missing int           // queues in which waking has not come into effect
	ago     time.Duration // since when it has in both
	reports waitqueue.Order[driver.Wakeup]
}

func newWaiting(wake func(driver.Wakeup)) *waiting {
	return &waiting{wake: wake, missing: 2, ago: math.MaxInt64}
}

// from returns the wake function for one of the queues. Waiters poll rarely once waking has come into
// effect, so that is reported when it has in both. With only one queue it never is: nothing reports the
// releases of the other lock. A turn is reported at once. The end of waking in either ends it for both, and
// releases may have been missed when it comes back.
func (w *waiting) from() func(driver.Wakeup) {
	inEffect := false
	return func(up driver.Wakeup) {
		w.mu.Lock()
		report := up.Kind == driver.MayBeFree || w.missing == 0
		switch up.Kind {
		case driver.WakingEnded:
			if inEffect {
				inEffect, w.ago = false, 0
				w.missing++
			}
		case driver.WakingBegan:
			if !inEffect {
				inEffect, w.ago = true, min(w.ago, up.Ago)
				w.missing--
				report, up.Ago = w.missing == 0, w.ago
			}
		}
		if report {
			w.reports.Add(up)
		}
		w.mu.Unlock()
		w.reports.Make(w.wake)
	}
}
