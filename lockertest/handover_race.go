package lockertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var handOverRaceClauses = []clause{
	{
		name: "handoff/context ends during", needs: canHandOver,
		says: "After an unknown outcome either of the two may hold the lock, or neither. Release of from, followed by TryAcquire with req, " +
			"resolves that.",
		run: handOverInDoubt,
	},
	{
		name: "handoff/one winner", needs: canHandOver,
		says: "The handoff ends the lease of from: of many handoffs at once from one lease, one is granted.",
		run: func(c *check) {
			for range 5 {
				from := c.acquire(c.a, c.request(c.name()))
				won := c.winner(32, func(_ int, l driver.Locker) (driver.Lease, error) {
					return l.Capabilities().HandOverer.HandOver(c.ctx, from, c.request(from.Name))
				})
				c.follows(from, won)
			}
		},
	},
	{
		name: "handoff/against a release", needs: canHandOver,
		says: "At most one holder at a time, also if from is released, and its lock taken by another, during the handoff.",
		run: func(c *check) {
			for round := range 20 {
				from := c.acquire(c.a, c.request(c.name()))
				won := c.winner(2, func(i int, l driver.Locker) (driver.Lease, error) {
					if i == round%2 { // a scheduler may always run the same call first
						return l.Capabilities().HandOverer.HandOver(c.ctx, from, c.request(from.Name))
					}
					c.release(l, from)
					return l.TryAcquire(c.ctx, c.request(from.Name))
				})
				c.follows(from, won)
			}
		},
	},
	{
		name: "handoff/one step", needs: canHandOver,
		says: "HandOverer hands a lock over in one step.",
		run:  handOverIsOneStep,
	},
}

func handOverInDoubt(c *check) {
	for range 40 {
		from := c.acquire(c.a, c.request(c.name()))
		req := c.request(from.Name)
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(rand.Int64N(int64(3*time.Millisecond))))
		_, err := c.a.Capabilities().HandOverer.HandOver(ctx, from, req)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.errorf("HandOver whose context ended during the call: got error %v, want one that wraps %v", err, context.DeadlineExceeded)
		}
		c.release(c.b, from)
		c.follows(from, c.acquire(c.b, req))
	}
}

// winner makes n calls at once, expects that one is granted, and returns its lease.
func (c *check) winner(n int, call func(i int, l driver.Locker) (driver.Lease, error)) driver.Lease {
	var mu sync.Mutex
	var won []driver.Lease
	c.parallel(n, func(i int, l driver.Locker) {
		lease, err := call(i, l)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			won = append(won, lease)
		} else if !errors.Is(err, driver.ErrHeld) {
			c.errorf("one of %d calls at once failed: %v", n, err)
		}
	})
	if len(won) != 1 {
		c.fatalf("%d of %d calls at once were granted, want 1", len(won), n)
	}
	return won[0]
}

// handOverIsOneStep hands a lock over while others try to acquire it all the time.
func handOverIsOneStep(c *check) {
	lease := c.acquire(c.a, c.request(c.name()))
	others := c.contend(lease.Name)
	defer others()
	for range 30 {
		lease = c.handOver(c.b, lease, c.request(lease.Name))
	}
}

// contend makes several goroutines try to acquire a lock until end is called, and expects that
// all of them are refused.
func (c *check) contend(name string) (end func()) {
	var ended atomic.Bool
	var others sync.WaitGroup
	for i := range 6 {
		l := []driver.Locker{c.a, c.b}[i%2]
		others.Go(func() {
			for !ended.Load() {
				if lease, err := l.TryAcquire(c.ctx, c.request(name)); !errors.Is(err, driver.ErrHeld) {
					c.errorf("while a lock was handed over, another's request was not refused: got lease %v, error %v", lease, err)
					return
				}
			}
		})
	}
	return func() {
		ended.Store(true)
		others.Wait()
	}
}
