package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queues makes a fault of the Queue: wait replaces Wait.
func queues(wait func(next driver.Queue, name string, wake func(time.Duration)) (stop func())) func(*fixture, *faulty) {
	return func(_ *fixture, f *faulty) {
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			a.Queue = queueFault{a.Queue, wait}
			return a
		}
	}
}

type queueFault struct {
	next driver.Queue
	wait func(next driver.Queue, name string, wake func(time.Duration)) (stop func())
}

func (q queueFault) Wait(name string, wake func(time.Duration)) (stop func()) {
	return q.wait(q.next, name, wake)
}

// requests makes a fault of requests.
func requests(do func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) { return do(w, f, ctx, req) }
	}
}

func queueFaults() []fault {
	return []fault{
		{
			name: "no waiter has a position", says: "before the waiters",
			caught: []string{"queue/order", "queue/dead waiter", "queue/position ends", "queue/repeat"},
			make: requests(func(_ *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				req.QueueFor = 0
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a reserved lock looks held by its last holder", caught: []string{"queue/refusal"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				lease, err := f.Locker.TryAcquire(ctx, req)
				var held *driver.HeldError
				if errors.As(err, &held) && held.Reserved {
					r := w.record(req.Name)
					r.State = driver.StateHeld
					err = heldErr(r)
				}
				return lease, err
			}),
		},
		{
			name: "only the first waiter is ever granted the lock", caught: []string{"queue/dead waiter", "queue/end of the reservation"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if r, err := f.Locker.Inspect(ctx, req.Name); err == nil && r.State == driver.StateFree && r.Waiters > 0 && r.Position != 1 {
					r.State = driver.StateHeld
					return driver.Lease{}, heldErr(r)
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a waiter stays in the queue after its grant", caught: []string{"queue/nobody waits"},
			make: requests(func(_ *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				lease, err := f.Locker.TryAcquire(ctx, req)
				if err == nil && req.QueueFor > 0 {
					req.ID = newID()
					_, _ = f.Locker.TryAcquire(ctx, req)
				}
				return lease, err
			}),
		},
		{
			name: "a repeat empties the queue", caught: []string{"queue/repeat"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if w.holds(req.Name, req.ID.Reveal()) {
					w.store.Remove(req.Name)
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "positions never end", caught: []string{"queue/position ends"},
			make: requests(func(_ *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if req.QueueFor > 0 {
					req.QueueFor = time.Hour
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "waiters are not woken", says: "no call of wake", caught: []string{"queue/wakes"},
			make: queues(func(driver.Queue, string, func(time.Duration)) func() { return func() {} }),
		},
		{
			name: "every waiter is woken as if it were the first", says: "no call of wake", caught: []string{"queue/wakes"},
			make: queues(func(next driver.Queue, name string, wake func(time.Duration)) func() {
				return next.Wait(name, func(time.Duration) { wake(0) })
			}),
		},
		{
			name: "a Locker stays in the queue when it stops waiting", says: "the position is given up", caught: []string{"queue/leaving"},
			make: queues(func(next driver.Queue, name string, wake func(time.Duration)) func() {
				next.Wait(name, wake)
				return func() {}
			}),
		},
	}
}
