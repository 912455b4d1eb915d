package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A waiter keeps one watch open at a time, also if the Watcher never calls.
func TestWaiterOpensOneWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		var open, most atomic.Int64
		c := locktest.NewClient(t, locktest.Scripted{Locker: store.Locker(), OnWatch: func(string, func()) func() {
			most.Store(max(most.Load(), open.Add(1)))
			return func() { open.Add(-1) }
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		if n := most.Load(); n > 1 {
			t.Errorf("one waiter has %d watches open at once", n)
		}
	})
}

// A wait that ends because another client or a runner was closed does not return ErrClosed. Its
// error matches that of the context and the reason for which the lock was not granted.
func TestErrClosedIsOfTheClientItself(t *testing.T) {
	locktest.Bubble(t, "a runner's task", func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		locktest.MustLock(t, c, "other")
		r := locktest.NewRunner(t, c)
		var err error
		done := locktest.Campaign(t.Context(), r, func(ctx context.Context) error {
			err = c.Do(ctx, "other", func(context.Context) error { return nil })
			return err
		})
		time.Sleep(time.Second)
		_ = r.Close(t.Context())
		<-done //nolint:errcheck // the task has stored its error
		if !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the client is open, its lock was held, ctx was canceled: %v", err)
		}
	})
	locktest.Bubble(t, "another client", func(t *testing.T) {
		one, two := locktest.NewClient(t, memory.New()), locktest.NewClient(t, memory.New())
		locktest.MustLock(t, two, "other")
		time.AfterFunc(time.Second, func() { _ = one.Shutdown(context.Background()) })
		var err error
		_ = one.Do(t.Context(), "job", func(ctx context.Context) error {
			_, err = two.Lock(ctx, "other")
			return nil
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the second client is open, its lock was held, ctx was canceled: %v", err)
		}
	})
}

// waking is how a waiter learns that a lock is free.
type waking struct {
	dead  bool // the holder's lease expires
	slots bool // another slot is held
	// locker is that of the waiter. It may change f, which has no Watcher.
	locker func(store *memory.Store, f *locktest.Faulty) holdfast.Locker
	opts   []holdfast.ClientOption
	late   time.Duration // the lock may be granted so long after it became free
}

func TestWaiterWakes(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	poll := func(d time.Duration, more ...holdfast.ClientOption) []holdfast.ClientOption {
		return append(more, holdfast.WithPollInterval(d))
	}
	watched := func(_ *memory.Store, f *locktest.Faulty) holdfast.Locker { f.Watcher = true; return f }
	locktest.Rows(t, map[string]waking{
		"in the queue, on a release": {opts: poll(time.Hour, holdfast.WithTTL(time.Hour)),
			locker: func(store *memory.Store, _ *locktest.Faulty) holdfast.Locker { return store.Locker() }},
		"by the Watcher of a backend without a queue": {opts: poll(time.Hour, holdfast.WithTTL(time.Hour)), locker: watched},
		"when a dead holder's lease expires":          {dead: true, opts: poll(time.Hour), late: 20 * ms},
		"when that of a slot expires":                 {dead: true, slots: true, opts: poll(time.Hour, holdfast.WithSlots(2)), late: 20 * ms},
		"when that of a slot expires, watched": {dead: true, slots: true, locker: watched, opts: poll(time.Hour, holdfast.WithSlots(2)),
			late: 20 * ms},
		"by polling, without a Watcher": {opts: poll(10 * s), late: 12 * s,
			locker: func(_ *memory.Store, f *locktest.Faulty) holdfast.Locker { return locktest.Anonymous{Locker: f} }},
		"by polling, when the Watcher missed the release": {late: 25 * s, locker: func(_ *memory.Store, f *locktest.Faulty) holdfast.Locker {
			f.Watcher, f.NoBatchReads = true, true
			return silentWatcher{f, began}
		}},
		"by polling, when the Queue missed the release": {late: 25 * s, locker: func(_ *memory.Store, f *locktest.Faulty) holdfast.Locker {
			f.Watcher, f.Queue = true, true
			return silentWatcher{f, beganBefore}
		}},
	}, func(t *testing.T, row waking) {
		const after = 100 * s
		store := memory.NewStore()
		if row.slots {
			locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithSlots(2)), "job")
		}
		if row.dead {
			for slot := range 2 { // whichever is free
				_, _ = store.Locker().TryAcquire(t.Context(), driver.Request{Name: locktest.SlotRecord("job", slot), ID: driver.NewLeaseID("dead"),
					TTL: after})
			}
		} else {
			h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			time.AfterFunc(after, func() { _ = h.Release(t.Context()) })
		}
		f := locktest.NewFaulty(t, store.Locker(), nil)
		l := holdfast.Locker(f)
		if row.locker != nil {
			l = row.locker(store, f)
		}
		start := time.Now()
		locktest.MustLock(t, locktest.NewClient(t, l, row.opts...), "job")
		if d := time.Since(start) - after; d < 0 || d > row.late {
			t.Errorf("granted %v after it became free", d)
		}
	})
}

// silentWatcher reports once that its watch is in effect, and calls no more.
type silentWatcher struct {
	holdfast.Locker
	once driver.Wakeup
}

func (d silentWatcher) Capabilities() driver.Capabilities {
	a := d.Locker.Capabilities()
	a.Waker = d
	return a
}

func (d silentWatcher) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	wake(d.once)
	return func() {}
}

func TestWaitingEndsWithBothReasons(t *testing.T) {
	locktest.Bubble(t, "held", func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
		c := locktest.NewClient(t, store.Locker())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 { // also for waiters behind the first
			go func() { _, _ = c.Lock(t.Context(), "job") }()
		}
		_, err := c.Lock(ctx, "job")
		var held *holdfast.HeldError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Record.Owner != "web-3" {
			t.Errorf("err = %v", err)
		}
		_ = c.Shutdown(t.Context())
	})
	locktest.Bubble(t, "held by this process", func(t *testing.T) {
		c := locktest.NewClient(t, memory.NewStore().Locker())
		h := locktest.MustLock(t, c, "job", holdfast.WithOwner("me"))
		why := errors.New("canceled by the operator")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err := c.Lock(ctx, "job")
		var held *holdfast.HeldError
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.As(err, &held) || held.Record.Token != h.Token() {
			t.Errorf("err = %v", err)
		}
	})
	locktest.Bubble(t, "backend failure", func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), locktest.Each(locktest.OpAcquire, locktest.Fault{Refuse: locktest.ErrInjected}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locktest.ErrInjected) || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("err = %v", err)
		}
	})
}

// A release between the refusal and the moment when the watch comes into effect is noticed at
// that moment, with batch reads and without.
func TestReleaseBeforeTheWatchIsInEffect(t *testing.T) {
	for _, noBatchReads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			time.AfterFunc(time.Second, func() { _ = h.Release(t.Context()) })
			f := locktest.NewFaulty(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method != driver.MethodWake {
					return next(ctx, call)
				}
				stop := make(chan func(), 1)
				later := time.AfterFunc(2*time.Second, func() { stop <- next(ctx, call).Stop })
				return driver.Answer{Stop: func() {
					if !later.Stop() {
						(<-stop)()
					}
				}}
			}), nil)
			f.Watcher, f.NoBatchReads = true, noBatchReads
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(time.Hour))
			start := time.Now()
			locktest.MustLock(t, c, "job")
			if d := time.Since(start); d != 2*time.Second {
				t.Errorf("no batch reads %v: granted after %v", noBatchReads, d)
			}
		})
	}
}

// Where refusals name no holder, a waiter inspects the lock once, and reports the holder. If that fails, it
// reports a holder without a name.
func TestWaiterIdentifiesAnAnonymousHolder(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job", holdfast.WithOwner("web-3"))
			f := locktest.NewFaulty(t, locktest.Anonymous{Locker: store.Locker()}, func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				if op != locktest.OpAcquire && !known {
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			})
			var seen locktest.Events
			c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); err == nil {
				t.Fatal("a held lock was granted")
			}
			synctest.Wait()
			owner, token := "", uint64(0)
			if known {
				owner, token = "web-3", h.Token()
			}
			n, first := seen.Count(holdfast.EventHolderSeen), seen.First(holdfast.EventHolderSeen)
			if n != 1 || first.Owner != owner || first.Token != token {
				t.Errorf("%d holders were reported, the first as %+v", n, first)
			}
			locktest.Release(t, h)
		})
	}
}
