package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// One test for each promise of the package documentation, by its number. The
// drivers' conformance suite and the tests against real servers show the parts that
// lie in a backend.

func TestPromise01_Exclusion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := newExclusive(t)
		var wg sync.WaitGroup
		var events atomic.Int64 // failures and grants
		const poll = time.Second
		var paces []*pace
		for p := range 5 { // five processes, each with failures of every kind
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			var mu sync.Mutex
			l := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
				mu.Lock()
				defer mu.Unlock()
				d := time.Duration(rng.IntN(4000)) * time.Millisecond
				events.Add(1)
				switch rng.IntN(8) {
				case 0:
					return fault{refuse: errInjected}
				case 1:
					return fault{lose: errInjected}
				case 2:
					return fault{hang: true}
				case 3:
					return fault{late: d}
				case 4:
					return fault{delay: d}
				default:
					events.Add(-1)
					return fault{}
				}
			})
			l.pace = newPace(t, 10*time.Second, poll)
			paces = append(paces, l.pace)
			c := newClient(t, l, holdfast.WithTTL(10*time.Second), holdfast.WithPollInterval(poll))
			for range 3 {
				wg.Go(func() {
					for range 20 {
						err := c.Do(t.Context(), "job", func(ctx context.Context) error {
							token, _ := holdfast.TokenFromContext(ctx)
							events.Add(1)
							check.enter(ctx, "job", token)
							select {
							case <-ctx.Done():
								time.Sleep(time.Second) // slow to stop; within the grace
							case <-time.After(12 * time.Second):
							}
							return nil
						})
						if err != nil && !errors.Is(err, holdfast.ErrLost) {
							t.Errorf("Do: %v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		for _, p := range paces {
			p.verify(int(events.Load()))
		}
	})
}

func TestPromise02_EarlyLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, reply = 30 * time.Second, 2 * time.Second
		store := memory.NewStore()
		// Each reply takes 2 s: a deadline counted from the reply would be late.
		a := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			switch {
			case op == opRenew && n > 1:
				return fault{refuse: errInjected}
			case op == opRelease:
				return fault{hang: true}
			default:
				return fault{delay: reply}
			}
		}))
		start := time.Now()
		h := mustLock(t, a, "job")
		if d := time.Since(start); d != reply {
			t.Fatalf("acquired after %v", d)
		}
		b := newClient(t, store.Locker())
		granted := make(chan time.Time)
		go func() {
			hb := mustLock(t, b, "job")
			if h.Context().Err() == nil {
				t.Error("another was granted the lock while the first hold's context was live")
			}
			if hb.Token() <= h.Token() {
				t.Errorf("token %d after %d", hb.Token(), h.Token())
			}
			granted <- time.Now()
		}()
		<-h.Context().Done()
		// The only renewal was sent 10 s after the start.
		if got, want := time.Since(start), 10*time.Second+ttl-ttl/6; got != want {
			t.Errorf("lost after %v, want %v: t0 of the last successful request + TTL - grace", got, want)
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, holdfast.ErrLost) || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("cause %v, Err %v: want ErrLost", cause, h.Err())
		}
		lost := time.Now()
		if d := (<-granted).Sub(lost); d < ttl/6 {
			t.Errorf("granted to another %v after the loss, want at least the grace", d)
		}
	})
}

func TestPromise03_FencingTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, store.Locker())
		last := uint64(0)
		take := func(how string) *holdfast.Hold {
			h := mustLock(t, c, "job")
			if h.Token() <= last {
				t.Errorf("%s: token %d is not above %d", how, h.Token(), last)
			}
			if got, ok := holdfast.TokenFromContext(h.Context()); !ok || got != h.Token() {
				t.Errorf("TokenFrom: %d, %v; want %d", got, ok, h.Token())
			}
			if got, ok := holdfast.HoldFromContext(h.Context()); !ok || got != h {
				t.Errorf("HoldFrom: %p, %v; want %p", got, ok, h)
			}
			last = h.Token()
			return h
		}
		for range 100 {
			_ = take("after a release").Release(t.Context())
		}
		// A process that died: its lease expires.
		dead := store.Locker()
		l, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), TTL: time.Second})
		if err != nil || l.Token <= last {
			t.Fatalf("lease %v, %v", l, err)
		}
		last = l.Token
		_ = take("after an expiry").Release(t.Context())
		store.Remove("job")
		time.Sleep(time.Second) // the server's clock passes the last token
		_ = take("after a removal of the record").Release(t.Context())
	})
}

func TestPromise04_TransientErrorIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		start := time.Now()
		failing := func() bool {
			s := time.Since(start) % (40 * time.Second)
			return s > 10*time.Second && s < 24*time.Second
		}
		l := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opRenew && failing() {
				return []fault{{refuse: errInjected}, {hang: true}, {lose: errInjected}}[n%3]
			}
			return fault{}
		})
		var seen events
		c := newClient(t, l, holdfast.WithObserver(seen.observe))
		h := mustLock(t, c, "job")
		time.Sleep(10 * time.Minute)
		if err := h.Err(); err != nil {
			t.Errorf("a hold was lost to errors that passed: %v", err)
		}
		if seen.count(holdfast.EventError) < 20 {
			t.Errorf("only %d failures were told", seen.count(holdfast.EventError))
		}
		// The definite answer ends it at once.
		other := store.Locker()
		defer other.Close(t.Context())
		if err := other.Release(t.Context(), h.Lease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("Err after a definite loss: %v", h.Err())
		}
	})
}

func TestPromise06_OnlyTheHolderReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			return map[string]fault{opRenew: {refuse: errInjected}}[op]
		}))
		old := mustLock(t, a, "job")
		<-old.Context().Done()
		b := newClient(t, store.Locker())
		next := mustLock(t, b, "job")
		for range 3 {
			if err := old.Release(t.Context()); err != nil {
				t.Errorf("a release of what is not ours any more: %v", err)
			}
		}
		time.Sleep(time.Hour)
		if next.Err() != nil || !isHeld(t, store, "job") {
			t.Errorf("a stale release freed the next holder: %v", next.Err())
		}
	})
}

func TestPromise07_ReleaseAfterTheWork(t *testing.T) {
	type end func(c *holdfast.Client, cancel func(), lose func())
	for name, finish := range map[string]end{
		"canceled": func(_ *holdfast.Client, cancel, _ func()) { cancel() },
		"lost":     func(_ *holdfast.Client, _, lose func()) { lose() },
		"shutdown": func(c *holdfast.Client, _, _ func()) { go func() { _ = c.Shutdown(context.Background()) }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				var losing, stopped atomic.Bool
				f := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
					if op == opRelease && !stopped.Load() {
						t.Error("released while the work goes on")
					}
					if op == opRenew && losing.Load() {
						return fault{refuse: errInjected}
					}
					return fault{}
				})
				c := newClient(t, f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_ = c.Do(ctx, "job", func(ctx context.Context) error {
					finish(c, cancel, func() { losing.Store(true) })
					<-ctx.Done()
					time.Sleep(20 * time.Second) // the work takes its time to stop
					synctest.Wait()
					stopped.Store(true)
					return nil
				})
				if f.count(opRelease) == 0 || isHeld(t, store, "job") {
					t.Error("not released after the work")
				}
			})
		})
	}
	t.Run("with a canceled context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
				if op == opRelease && n == 2 { // of Do's
					return fault{refuse: errInjected}
				}
				return fault{}
			})
			f.check = func(ctx context.Context, op string) {
				if op == opRelease && ctx.Err() != nil {
					t.Error("the release was sent with a canceled context")
				}
			}
			c := newClient(t, f)
			ctx, cancel := context.WithCancel(t.Context())
			h := mustLock(t, c, "job")
			cancel()
			if err := h.Release(ctx); err != nil || isHeld(t, store, "job") {
				t.Errorf("Release: %v", err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			_ = c.Do(ctx, "job", func(context.Context) error { cancel(); return nil })
			if isHeld(t, store, "job") {
				t.Error("Do returned before the lock was free")
			}
		})
	})
	t.Run("panic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := newClient(t, store.Locker())
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
				if isHeld(t, store, "job") {
					t.Error("a panic left the lock held")
				}
			}()
			_ = c.Do(t.Context(), "job", func(context.Context) error { panic("boom") })
		})
	})
}

// Only elapsed time counts. That the default clock does not follow the wall clock and
// counts suspend is shown by TestElapsedClock.
func TestPromise08_ClientClocksDoNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The server's clock is a year ahead: nothing of it may enter a local deadline.
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().AddDate(1, 0, 0) }))
		var suspended atomic.Int64
		start := time.Now()
		c := newClient(t, store.Locker(), holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		h := mustLock(t, c, "job")
		time.Sleep(time.Hour + 3*time.Second) // between two renewals
		if h.Err() != nil {
			t.Fatalf("lost: %v", h.Err())
		}
		// The machine sleeps for a minute: timers stand still, the lease is over.
		suspended.Store(int64(time.Minute))
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Error("Err does not know at once that the lease is over after a suspend")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(h.Context()), holdfast.ErrLost) {
			t.Error("the context did not end within a second after a suspend")
		}
	})
}

func TestPromise09_ElectionNeverDiesSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var down atomic.Bool
		f := newFaulty(t, store.Locker(), func(string, int, holdfast.Lease) fault {
			if down.Load() {
				return fault{refuse: errInjected}
			}
			return fault{}
		})
		var seen events
		c := newClient(t, f)
		r, err := holdfast.NewLeaderAwareRunner(c, "job", holdfast.WithObserver(seen.observe))
		if err != nil {
			t.Fatal(err)
		}
		var terms atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- r.Run(ctx, func(ctx context.Context) error {
				terms.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for range 5 {
			time.Sleep(time.Minute)
			down.Store(true)
			before := seen.count(holdfast.EventError)
			time.Sleep(10 * time.Minute)
			if r.IsLeader() {
				t.Error("leads without a backend")
			}
			if told := seen.count(holdfast.EventError) - before; told < 60 {
				t.Errorf("a lasting failure was told %d times in ten minutes", told)
			}
			down.Store(false)
		}
		time.Sleep(time.Minute)
		if terms.Load() != 6 || !r.IsLeader() {
			t.Errorf("%d terms, leader %v; want 6, true", terms.Load(), r.IsLeader())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestPromise10_NoLockIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
		ahead.Store(int64(24 * time.Hour)) // a server's clock is a day ahead …
		dead := store.Locker()
		lease, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), Owner: "dead", TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(0) // … and steps back, or another server takes over
		c := newClient(t, store.Locker())
		start := time.Now()
		h := mustLock(t, c, "job")
		if d := time.Since(start); d < 20*time.Second+20*time.Millisecond || d > 27*time.Second {
			t.Errorf("taken over after %v, want one TTL of the dead holder and 0.1 %% for clocks that differ", d)
		}
		if h.Token() <= lease.Token {
			t.Errorf("token %d after %d", h.Token(), lease.Token)
		}
	})
	t.Run("a live holder is safe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
			ahead.Store(int64(24 * time.Hour))
			live := newClient(t, store.Locker())
			h := mustLock(t, live, "job")
			ahead.Store(0)
			c := newClient(t, store.Locker())
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v", err)
			}
			if h.Err() != nil {
				t.Errorf("the live holder was replaced: %v", h.Err())
			}
		})
	})
}
