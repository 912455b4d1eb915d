package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Call calls the hold's function, once, on the caller's goroutine. If the function ends the goroutine, nobody gets
// a result, so that is reported.
func (h *Hold) Call(fn func() error) (err error) {
	event.CallUser(fn, func(r event.Result) {
		switch {
		case r.Panic != nil:
			panic(r.Panic)
		case r.Goexit:
			h.ReportTask(r.Err)
		}
		err = r.Err
	})
	return err
}

// Run calls fn while the lock of a name is held, and then releases it. ctx is that of the wait for the lock.
func (h *Hold) Run(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	// Promise 7: the release comes after fn has returned or panicked.
	defer h.Finish(ctx)
	if err := h.Err(); err != nil {
		return h.client.notBegun(ctx, name, driver.Errorf("lock %q: %w", name, err))
	}
	return h.Verdict(h.Call(func() error { return fn(h.Context()) }))
}

// Run calls fn while all locks are held, and then releases them. ctx is that of the wait for them.
func (m *MultiHold) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	// Promise 7: the release comes after fn has returned or panicked.
	defer m.finish(ctx)
	if err := m.Err(); err != nil {
		return m.client.notBegun(ctx, m.names[0], err)
	}
	return m.verdict(m.members[0].Call(func() error { return fn(m.Context()) }))
}

// notBegun is the error if a hold ended, for why, before its function could begin. ctx may have ended it.
func (c *Client) notBegun(ctx context.Context, name string, why error) error {
	if ctx.Err() != nil {
		return c.WaitEnded(ctx, name, nil)
	}
	return why
}

// Work is the work under a hold: calls of one function until it returns nil or the hold has ended, on a goroutine
// of its owner's.
type Work struct {
	Hold    *Hold
	Func    func(ctx context.Context) error
	Restart settings.Backoff
	// Ended is called once, after the last call. If that has panicked, the lock is already released.
	Ended func()
	// Go runs a function on another goroutine of the owner's.
	Go func(func())

	failures int
}

// Do calls the function, and after an error, which is reported, calls it again after a backoff. A function that
// ends its goroutine counts as one that has failed: another goroutine goes on.
func (w *Work) Do() { w.callIn(0) }

// callIn goes on with the work after a backoff.
func (w *Work) callIn(backoff time.Duration) {
	done := false
	for w.wait(backoff); !done && w.Hold.Err() == nil; w.wait(backoff) {
		backoff, done = w.call()
	}
	w.Ended()
}

// call calls the function once, and returns the backoff before the next call, if one follows.
func (w *Work) call() (backoff time.Duration, done bool) {
	h := w.Hold
	began := h.client.now()
	event.CallUser(func() error { return w.Func(h.Context()) }, func(r event.Result) {
		if r.Panic != nil {
			defer panic(r.Panic) // the program is about to end
			h.Finish(h.Context())
			w.Ended()
			return
		}
		if h.ReportTask(r.Err); r.Err == nil || h.Err() != nil {
			done = true
		} else {
			if h.client.now()-began > w.Restart.Max {
				w.failures = 0
			}
			backoff = timing.Backoff(w.failures, w.Restart.Initial, w.Restart.Max)
			w.failures++
		}
		if r.Goexit {
			w.Go(func() { w.callIn(backoff) })
		}
	})
	return backoff, done
}

// wait waits until the backoff is over or the hold has ended.
func (w *Work) wait(backoff time.Duration) {
	if backoff == 0 {
		return
	}
	timer := time.NewTimer(backoff)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Hold.Context().Done():
	}
}

// ReportTask reports the error that the hold's function has returned, unless it says only that the hold
// has ended.
func (h *Hold) ReportTask(err error) {
	ended := h.Err()
	if err == nil || ended != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ended)) {
		return
	}
	h.Report(event.Error, "task", err)
}
