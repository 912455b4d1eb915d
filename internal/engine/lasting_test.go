package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// refusal is a lasting error as a driver returns it.
func refusal(op, name string, mark func(error) error) error {
	return &driver.OpError{Op: op, Backend: "memory", Name: name, Err: mark(errors.New("read-only"))}
}

var marks = map[error]func(error) error{driver.ErrDenied: driver.Denied, driver.ErrDamaged: driver.Damaged}

// A lasting error of the first request is returned at once. It is certain, so nothing is cleaned up.
func TestLastingErrorIsReturnedAtOnce(t *testing.T) {
	noop := func(context.Context) error { return nil }
	for sentinel, mark := range marks {
		for name, call := range map[string]func(context.Context, *holdfast.Client) error{
			"Lock":    func(ctx context.Context, c *holdfast.Client) error { _, err := c.Lock(ctx, "job"); return err },
			"TryLock": func(ctx context.Context, c *holdfast.Client) error { _, err := c.TryLock(ctx, "job"); return err },
			"Do":      func(ctx context.Context, c *holdfast.Client) error { return c.Do(ctx, "job", noop) },
			"TryDo":   func(ctx context.Context, c *holdfast.Client) error { return c.TryDo(ctx, "job", noop) },
		} {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, l driver.Lease) (fault locktest.Fault) {
					if op == locktest.OpAcquire {
						fault.Refuse = refusal("acquire", l.Name, mark)
					}
					return fault
				})
				events := 0
				c := locktest.NewClient(t, f, holdfast.WithObserver(func(holdfast.Event) { events++ }))
				start := time.Now()
				err := call(t.Context(), c)
				if !errors.Is(err, sentinel) || time.Since(start) > 0 {
					t.Errorf("%s, %v: error %v after %v", name, sentinel, err, time.Since(start))
				}
				if err := c.Shutdown(t.Context()); err != nil || events > 0 || f.Total() != 1 {
					t.Errorf("%s, %v: Shutdown: %v; %d events, %d calls; want one call", name, sentinel, err, events, f.Total())
				}
			})
		}
	}
}

// A caller that has met a holder goes on waiting: the failures are reported and retried.
func TestWaiterSurvivesALastingError(t *testing.T) {
	for sentinel, mark := range marks {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			holder := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			start := time.Now()
			f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, l driver.Lease) (fault locktest.Fault) {
				if op == locktest.OpAcquire && n > 1 && time.Since(start) < time.Minute {
					fault.Refuse = refusal("acquire", l.Name, mark)
				}
				return fault
			})
			f.NoBatchReads = true
			reported := 0
			waiter := locktest.NewClient(t, f, holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventError && errors.Is(e.Err, sentinel) {
					reported++
				}
			}))
			time.AfterFunc(30*time.Second, func() { _ = holder.Release(context.Background()) })
			h, err := waiter.Lock(t.Context(), "job")
			if err != nil || time.Since(start) < time.Minute {
				t.Fatalf("Lock: %v after %v", err, time.Since(start))
			}
			if err := errors.Join(h.Release(t.Context()), waiter.Shutdown(t.Context())); err != nil || reported < 3 {
				t.Errorf("%d failures reported, error %v", reported, err)
			}
		})
	}
}

// A runner and a LeaseManager never give up: they report and retry from the first request on. An argument that the backend does not
// allow is such a failure, because the names and options were checked before: it is a rule of something that a person can change.
func TestRunnersAndManagersRetryLastingErrors(t *testing.T) {
	for what, mark := range map[string]func(error) error{"denied": driver.Denied, "damaged": driver.Damaged,
		"invalid": func(error) error { return driver.Invalid("index", "foreign", "ours") }} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { retriesLasting(t, mark) }) })
	}
}

func retriesLasting(t *testing.T, mark func(error) error) {
	start := time.Now()
	f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, l driver.Lease) (fault locktest.Fault) {
		if op == locktest.OpAcquire && time.Since(start) < time.Minute {
			fault.Refuse = refusal("acquire", l.Name, mark)
		}
		return fault
	})
	reported := map[string]int{}
	c := locktest.NewClient(t, f, holdfast.WithObserver(func(e holdfast.Event) {
		if e.Type == holdfast.EventError {
			reported[e.Name]++
		}
	}))
	m := locktest.NewManager(t, c)
	locktest.MustAdd(t, m, "managed")
	if err := locktest.NewRunner(t, c).Run(t.Context(), locktest.EmptyTask); err != nil || time.Since(start) < time.Minute {
		t.Errorf("Run: %v after %v", err, time.Since(start))
	}
	time.Sleep(time.Minute)
	if _, held := m.Hold("managed"); !held {
		t.Error("the manager does not hold its name")
	}
	if err := c.Shutdown(t.Context()); err != nil || reported["job"] < 3 || reported["managed"] < 3 {
		t.Errorf("reported: %v, Shutdown: %v", reported, err)
	}
	if n := f.Count(locktest.OpAcquire); reported["job"]+reported["managed"] != n-2 {
		t.Errorf("%d requests, of which two were granted; reported: %v", n, reported)
	}
}

// The damaged record of one slot does not keep callers from the others, nor make them ask more often. A
// caller that gives up is told that the others are held, whichever slot it asked last.
func TestDamagedSlot(t *testing.T) {
	for _, slots := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, l driver.Lease) (fault locktest.Fault) {
				if op == locktest.OpAcquire && l.Name == "job" {
					fault.Refuse = refusal("acquire", l.Name, driver.Damaged)
				}
				return fault
			})
			c := locktest.NewClient(t, f)
			for range slots - 1 {
				locktest.MustLock(t, c, "job", holdfast.WithSlots(slots))
			}
			other := locktest.NewClient(t, f)
			for i := range 10 { // each begins at a random slot
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(i)*25*time.Millisecond)
				before := f.Count(locktest.OpAcquire)
				_, err := other.Lock(ctx, "job", holdfast.WithSlots(slots))
				cancel()
				// the backoff ends at 2.5 s, less a quarter
				if n := f.Count(locktest.OpAcquire) - before; !errors.Is(err, driver.ErrHeld) || ctx.Err() == nil || n > 50 {
					t.Fatalf("Lock while the other slots of %d are held: %v after %d requests", slots, err, n)
				}
			}
		})
	}
}
