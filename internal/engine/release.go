package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine/waiter"
	"github.com/holdfast-go/holdfast/internal/event"
)

// Lost ends the hold without a release. The Renewer calls it.
func (h *Hold) Lost(cause error) {
	// Promise 2: the context ends at the local deadline, before another can be granted the lock.
	h.cancel(cause)
	h.client.queues.freed(h, h.client.now())
	h.policy.over(h, false)
	h.measured().loss(cause)
}

// shutDown ends the hold's context for a Shutdown, and releases the lock.
func (h *Hold) shutDown(ctx context.Context) {
	h.cancel(cause.ErrShutdown)
	// Promise 7: a hold with a function is released after the function has returned.
	if !h.managed {
		h.client.background.Go(func() { _ = h.Release(ctx) }) // a failure is reported to the observers
	}
}

// release is the one release of a hold.
type release struct {
	began    time.Duration
	measured *Measured // or nil
	done     chan struct{}
	err      error // readable once done is closed
	doubt    error // of the last request whose outcome is unknown; for those that send the requests
}

// Release ends the hold's context and releases the lock. All calls return the result of the one release. A nil ctx counts as
// context.Background: a lock must not stay held because of it.
func (h *Hold) Release(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if inTime, first := h.BeginRelease(); first {
		err := errPanicked
		// Also after a panic that the caller recovers: a cleanup follows, and Shutdown can end.
		defer func() { h.EndRelease(inTime, err) }()
		err = h.releaseUntilDone(ctx)
		return err
	}
	return h.awaitRelease(ctx)
}

// awaitRelease waits until the release of a hold has ended, which has begun before, or ctx has.
func (h *Hold) awaitRelease(ctx context.Context) error {
	r := h.release.Load()
	select {
	case <-r.done:
	case <-ctx.Done():
		if !cause.IsClosed(r.done) {
			return driver.Errorf("release %q: %w", h.Name(), cause.Of(ctx))
		}
	}
	return r.err
}

// BeginRelease ends the hold's context and its renewal. inTime reports whether the lease was
// renewed in time until now. first is false if a release has begun before: then nothing is done.
func (h *Hold) BeginRelease() (inTime, first bool) {
	r := &release{began: h.client.now(), done: make(chan struct{})}
	if !h.release.CompareAndSwap(nil, r) {
		return false, false
	}
	h.cancel(cause.ErrReleased)
	inTime = h.client.renewer.Remove(&h.entry)
	// A slow hook must not keep the context live.
	r.measured = h.measure(h.parent, telemetry.Release)
	// Before the request: another may hold the lock before the answer arrives.
	h.measured().endHold(inTime, cmp.Or(h.entry.LostErr(), errLate))
	return inTime, true
}

// EndRelease ends the release that BeginRelease began: with err nil, the lock is released.
func (h *Hold) EndRelease(inTime bool, err error) {
	c, e := h.client, &h.entry
	if err == nil && inTime {
		e.Report(event.Released, "", nil)
	}
	doubt := waiter.InDoubt{Any: h.isInDoubt, Until: h.inDoubtUntil}
	if err != nil {
		doubt.Note(c.now() + e.Timing.TTL)
	}
	if doubt.Any && c.now() < doubt.Until && !errors.Is(err, driver.ErrClosed) {
		c.CleanUp(e.Lease, doubt.Until, e.Timing.RequestTimeout, e.Emit)
	}
	c.queues.freed(h, h.yieldUntil())
	c.mu.Lock()
	delete(c.holds, h)
	c.mu.Unlock()
	r := h.release.Load()
	r.measured.End(err)
	r.err = err
	close(r.done)
	h.policy.over(h, true)
	c.work.Done()
}

// releaseUntilDone sends the release, and retries it until ctx ends or the lease has expired. At
// least one request is sent, also if ctx has ended: a canceled caller is the usual reason to
// release.
func (h *Hold) releaseUntilDone(ctx context.Context) error {
	values := h.releaseContext(ctx)
	for n := 0; ; n++ {
		retryIn, err := h.TryRelease(values, n)
		if retryIn == 0 {
			return err
		}
		select {
		case <-time.After(retryIn):
		case <-ctx.Done():
		case <-h.client.base.Done():
		}
		if ctx.Err() != nil || h.client.base.Err() != nil {
			return h.leftToExpire(err)
		}
	}
}

// releaseContext is the context of the requests: it has the caller's values, or those of the measured release.
func (h *Hold) releaseContext(ctx context.Context) context.Context {
	if m := h.release.Load().measured; m != nil {
		ctx = m
	}
	return context.WithoutCancel(ctx)
}

// TryRelease sends one release, number n counted from 0. If retryIn is not 0, the caller must try
// again after that time.
func (h *Hold) TryRelease(ctx context.Context, n int) (retryIn time.Duration, err error) {
	c, e := h.client, &h.entry
	if c.closing.Err() != nil || e.Role == telemetry.Managed { // many are released at once
		err = c.releases.sendLimited(ctx, e.Lease, e.Timing.RequestTimeout, n > 0)
	} else {
		err = c.releases.send(ctx, e.Lease, e.Timing.RequestTimeout)
	}
	return h.noteRelease(n, err)
}

// noteRelease notes the result of request n. If retryIn is not 0, the caller must try again after that time.
func (h *Hold) noteRelease(n int, err error) (retryIn time.Duration, _ error) {
	c, e := h.client, &h.entry
	if err == nil || errors.Is(err, driver.ErrLost) {
		return 0, nil
	}
	e.Report(event.Error, "release", err)
	if driver.OutcomeKnown(err) && !driver.Lasting(err) { // a person may repair it in time
		return 0, err
	}
	if !driver.OutcomeKnown(err) && !driver.NotSent(err) {
		h.release.Load().doubt = err
	}
	retryIn = e.Timing.Backoff(n)
	if expiry := e.LossAt() + e.Timing.Grace; c.base.Err() != nil || c.now()+retryIn >= expiry {
		return 0, h.leftToExpire(err)
	}
	return retryIn, err
}

// leftToExpire returns the error of a release whose last request failed with err. A refusal is certain only
// of its own request, and so is that it was not sent: an earlier one may have been applied.
func (h *Hold) leftToExpire(err error) error {
	doubt := h.release.Load().doubt
	if doubt == nil {
		return driver.Errorf("release %q: the lock may stay held until its lease expires: %w", h.Name(), err)
	}
	if driver.OutcomeKnown(err) || driver.NotSent(err) {
		err = driver.Errorf("%w; then %v", doubt, err)
	}
	return driver.Errorf("release %q: outcome unknown, the lock may stay held until its lease expires: %w", h.Name(), err)
}

// Where a Waker wakes the waiters but nothing orders them, the next waiter of this process yields after a release: it lets other
// processes send their requests first, since they learn of the release later. Without a Waker it need not: processes that poll would
// hardly ever find the lock free. With a Queue the backend has the order.
const (
	minYield = time.Millisecond
	maxYield = 100 * time.Millisecond
)

// yieldUntil is until when the next waiter of this process lets other processes send their
// requests: for as long as the release took, which is about when they learn of it.
func (h *Hold) yieldUntil() time.Duration {
	c, now := h.client, h.client.now()
	if c.capabilities.Waker == nil {
		return now
	}
	return now + min(max(now-h.release.Load().began, minYield), maxYield)
}

// Finish releases a hold whose function has returned or panicked. It waits for a limited time: if
// the backend does not answer, a cleanup goes on in the background.
func (h *Hold) Finish(ctx context.Context) {
	// Promise 7: the release does not end with the caller's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.entry.Timing.Share(3, 30*time.Second))
	defer cancel()
	_ = h.Release(ctx) // a failure is reported to the observers
}

// Verdict returns the result of a hold's function: the function's own error, joined with that of
// the lease if it was lost before the function returned.
func (h *Hold) Verdict(err error) error {
	gone := h.LeaseErr()
	switch {
	case gone == nil || errors.Is(err, gone):
		return err
	case err == nil:
		return gone
	}
	return fmt.Errorf("%w; %w", err, gone)
}

// Released reports whether the release has ended.
func (h *Hold) Released() bool {
	r := h.release.Load()
	return r != nil && cause.IsClosed(r.done)
}

// ReleaseErr returns the result of a release that has ended.
func (h *Hold) ReleaseErr() error { return h.release.Load().err }
