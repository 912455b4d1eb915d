package lockertest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var contextClauses = []clause{
	{
		name: "context/ended before",
		says: "Each method returns soon after its context ends. A context's error means that the outcome is unknown, unless the driver says " +
			"that nothing was sent.",
		run: endedContext,
	},
	{
		name: "context/cause",
		says: "No error wraps the cause of a context's end, which may be the loss of another lock.",
		run:  causeIsNoOutcome,
	},
	{
		name: "context/ends during",
		says: "If the outcome is unknown, the backend may have done what was asked, or may still do it. A release by the ID of an acquire " +
			"undoes it.",
		run: contextEndsDuring,
	},
	{
		name: "context/hanging backend", needs: canStall, alone: true,
		says: "Each method returns soon after its context ends, whatever the backend does.",
		run: func(c *check) {
			const limit = 100 * time.Millisecond
			c.stalled(limit, func(method string, err error, took time.Duration) {
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
					c.wrongf("%s, while the backend did not answer until the context ended: got error %v, want one that wraps %v, and not the cause",
						method, err, context.DeadlineExceeded)
				}
				if late := took - limit; late > c.soon {
					c.errorf("%s returned %v after its context had ended", method, late)
				}
			}, func(method string, waited time.Duration) {
				c.errorf("%s had not returned %v after its context had ended", method, waited-limit)
			})
		},
	},
	{
		name: "context/own limit", needs: canStall, alone: true,
		says: "Each method applies a time limit of its own when the context has none.",
		run: func(c *check) {
			c.stalled(0, func(method string, err error, took time.Duration) {
				if err == nil {
					c.errorf("%s, without a context's limit, while the backend did not answer: no error after %v", method, took)
				}
			}, func(method string, waited time.Duration) {
				c.errorf("%s, without a context's limit, while the backend did not answer: it had not returned after %v", method, waited)
			})
		},
	},
}

// errAnother is the cause of contexts that end during a call. Clients of HTTP return it for a request that was under way.
var errAnother = driver.Errorf("another lock's: %w", driver.ErrLost)

func endedContext(c *check) {
	for _, end := range []struct {
		want error
		make func() (context.Context, context.CancelFunc)
	}{
		{context.Canceled, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			return ctx, cancel
		}},
		{context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
			return context.WithDeadline(c.ctx, time.Unix(1, 0))
		}},
	} {
		ctx, cancel := end.make()
		name := c.name()
		for _, m := range append(c.methods(c.a, name), listing(c.a, name)...) {
			if err := m.call(ctx); !errors.Is(err, end.want) {
				c.wrongf("%s with a context that had ended: got error %v, want one that wraps %v", m.name, err, end.want)
			}
		}
		cancel()
	}
}

// causeIsNoOutcome uses contexts like those of holds. Their cause is ErrLost, ErrClosed or
// ErrReleased, of a lock that is not the one of the call.
func causeIsNoOutcome(c *check) {
	for _, cause := range []error{driver.ErrLost, driver.ErrClosed, driver.ErrHeld, driver.ErrInvalid} {
		ctx, cancel := context.WithCancelCause(c.ctx)
		cancel(driver.Errorf("another lock's: %w", cause))
		for _, m := range c.methods(c.a, c.name()) {
			if err := m.call(ctx); errors.Is(err, cause) {
				c.errorf("%s with a context whose cause matches %v: the error %v matches it too, as if it were the outcome for this lock", m.name,
					cause, err)
			}
		}
	}
}

func contextEndsDuring(c *check) {
	for range 40 {
		req := c.request(c.name())
		ends := time.Now().Add(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
		ctx, cancel := context.WithDeadlineCause(c.ctx, ends, errAnother)
		_, err := c.a.TryAcquire(ctx, req)
		late := time.Since(ends)
		cancel()
		// A server may have closed a connection that was idle for long, before the context ended.
		switch {
		case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF):
		case late < 0:
			c.errorf("TryAcquire of a free lock: %v", err)
		default:
			c.wrongf("TryAcquire whose context ended during the call: got error %v, want one that wraps %v, and not the cause", err,
				context.DeadlineExceeded)
		}
		if late > c.soon {
			c.errorf("TryAcquire returned %v after its context had ended", late)
		}
		next := c.request(req.Name)
		c.eventually("releasing by its ID an acquire that ended in doubt", func() bool {
			err := c.b.Release(c.ctx, driver.Lease{Name: req.Name, ID: req.ID})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) { // a busy machine has not answered within the driver's own limit
				c.fatalf("Release of %q: %v", short(req.Name), err)
			}
			_, err = c.b.TryAcquire(c.ctx, next)
			return err == nil
		})
	}
}

// stalled calls every method on a store that does not answer, and passes each result to report.
// The context of a call ends after the limit; a limit of 0 means never. The calls run at the
// same time, since each may last as long as its limit.
//
// A call that has not returned soon after its limit, or after the longest that it may set itself, is
// passed to hangs. Nothing waits for it any more, and its result is dropped.
func (c *check) stalled(limit time.Duration, report func(string, error, time.Duration), hangs func(string, time.Duration)) {
	name := c.name()
	lease := c.acquire(c.a, c.request(name))
	resume, err := c.cfg.Stall(c.ctx, name)
	if err != nil {
		c.fatalf("lockertest: Config.Stall: %v", err)
	}
	methods := append(c.methods(c.a, name), listing(c.a, name)...)
	type result struct {
		method int
		err    error
		took   time.Duration
	}
	results := make(chan result, len(methods))
	for i, m := range methods {
		go func() {
			ctx := context.WithoutCancel(c.ctx)
			if limit > 0 {
				limited, cancel := context.WithTimeoutCause(ctx, limit, errAnother)
				defer cancel()
				ctx = limited
			}
			start := time.Now()
			err := m.call(ctx)
			results <- result{i, err, time.Since(start)}
		}()
	}
	patience := limit + c.soon
	if limit == 0 {
		patience = c.ownLimit
	}
	over := time.After(patience)
	for left, waiting := len(methods), true; left > 0 && waiting; {
		select {
		case r := <-results:
			report(methods[r.method].name, r.err, r.took)
			methods[r.method].name = ""
			left--
		case <-over:
			waiting = false
		}
	}
	for _, m := range methods {
		if m.name != "" {
			hangs(m.name, patience)
		}
	}
	resume()
	// A call whose outcome is unknown may have been done.
	c.eventually("the backend answers again", func() bool {
		_, err := c.b.Inspect(c.ctx, name)
		return err == nil
	})
	c.release(c.b, lease)
}
