package lockertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queues makes a fault of waking the waiters of queues: wait replaces Wake.
func queues(wait func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func())) func(*fixture,
	*faulty) {
	return replaces(driver.MethodWake, func(_ *fixture, had driver.Capabilities, _ context.Context, call driver.Call) driver.Answer {
		if call.Waiter == "" {
			return driver.Answer{Stop: had.Waker.Wake(call.Name, call.Waiter, call.Wake)}
		}
		return driver.Answer{Stop: wait(had.Waker, call.Name, call.Waiter, call.Wake)}
	})
}

// leaves makes a fault of leaving queues.
func leaves(leave func(next driver.Queue, ctx context.Context, waiter driver.WaiterID, names []string) error) func(*fixture, *faulty) {
	return replaces(driver.MethodLeave, func(_ *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) driver.Answer {
		return driver.Answer{Err: leave(had.Queue, ctx, call.Waiter, call.Names)}
	})
}

// requests makes a fault of requests.
func requests(do func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) { return do(w, f, ctx, req) }
	}
}

// waits notes the waiter of a request, and empty has all that were noted leave the queue of a lock.
func (w *fixture) waits(req driver.Request) {
	if req.QueueFor > 0 {
		before, _ := w.noted("waiters " + req.Name).([]driver.WaiterID)
		w.note("waiters "+req.Name, append(slices.Clip(before), req.Waiter))
	}
}

func (w *fixture) empty(name string) {
	waiters, _ := w.noted("waiters " + name).([]driver.WaiterID)
	for _, waiter := range waiters {
		_ = w.plain.Leave(w.ctx, waiter, []string{name})
	}
}

// wakesLong says that waking was in effect long before Wake was called.
var wakesLong = replaces(driver.MethodWake, func(_ *fixture, had driver.Capabilities, _ context.Context, call driver.Call) driver.Answer {
	return driver.Answer{Stop: had.Waker.Wake(call.Name, call.Waiter, func(up driver.Wakeup) {
		if up.Kind == driver.WakingBegan {
			up.Ago = time.Hour
		}
		call.Wake(up)
	})}
})

func queueFaults() []fault {
	return []fault{
		{
			name: "waking is always said to have been in effect before", says: "waking was reported to be in effect",
			caught: []string{"watcher/waking since"},
			make:   wakesLong,
		},
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
			name: "a repeat empties the queue", says: "position 1 of 1", caught: []string{"queue/repeat"},
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
			name: "wake-ups of unknown kinds", says: "Wakeup.Kind 3 is invalid: must be MayBeFree", caught: []string{"queue/wakes"},
			make: queues(func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) func() {
				return next.Wake(name, waiter, func(up driver.Wakeup) {
					wake(driver.Wakeup{Kind: driver.WakingEnded + 1})
					wake(up)
				})
			}),
		},
		{
			name: "waiters are not woken", says: "no call of wake", caught: []string{"queue/wakes"},
			make: queues(func(driver.Waker, string, driver.WaiterID, func(driver.Wakeup)) func() { return func() {} }),
		},
		{
			name: "every waiter is woken as if it were the first", says: "no call of wake", caught: []string{"queue/wakes"},
			make: queues(func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) func() {
				return next.Wake(name, waiter, func(driver.Wakeup) { wake(driver.Wakeup{}) })
			}),
		},
		{
			name: "a release of a lease without Contended wakes nobody", says: "no call of wake",
			caught: []string{"queue/release of the uncontended"},
			make: func(w *fixture, f *faulty) {
				queues(func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) func() {
					return next.Wake(name, waiter, func(up driver.Wakeup) {
						if up.Kind != driver.MayBeFree || w.noted("quiet "+name) == nil {
							wake(up)
						}
					})
				})(w, f)
				f.release = func(ctx context.Context, l driver.Lease) error {
					if !l.Contended {
						w.note("quiet "+l.Name, true)
					}
					return f.Locker.Release(ctx, l)
				}
			},
		},
		{
			name: "a queue without a Waker", says: "no Waker that wakes its waiters", caught: []string{"info/sane"},
			make: func(_ *fixture, f *faulty) {
				f.capabilities = func(c driver.Capabilities) driver.Capabilities { c.Waker = nil; return c }
			},
		},
		{
			name: "a grant ends the queue", caught: []string{"queue/grant of a later turn"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				w.waits(req)
				lease, err := f.Locker.TryAcquire(ctx, req)
				if err == nil {
					w.empty(req.Name)
				}
				return lease, err
			}),
		},
		{
			name: "a waiter that leaves stays in the queue", says: "the position is given up", caught: []string{"queue/leaving",
				"queue/waiters of one Locker"},
			make: leaves(func(driver.Queue, context.Context, driver.WaiterID, []string) error { return nil }),
		},
		{
			name: "a waiter leaves one queue of several", says: "want 1", caught: []string{"queue/leaving"},
			make: leaves(func(next driver.Queue, ctx context.Context, waiter driver.WaiterID, names []string) error {
				return next.Leave(ctx, waiter, names[:1])
			}),
		},
		{
			name: "a Locker has one position for all its waiters", caught: []string{"queue/waiters of one Locker"},
			make: requests(func(_ *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if req.Waiter != "" {
					req.Waiter = driver.WaiterID(fmt.Sprintf("%p", f))
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a batch read shows no position", caught: []string{"queue/positions in batch reads"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) { r.Position = 0 }),
		},
	}
}

// holds reports whether a lease holds its lock, without the faults.
func (w *fixture) holds(name, id string) bool {
	return w.write(w.ctx, driver.Lease{Name: name, ID: driver.NewLeaseID(id)}, w.record(name).Data) == nil
}
