package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
)

// release is the one release of a hold.
type release struct {
	began time.Duration
	done  chan struct{}
	err   error // readable once done is closed
}

// Release ends the hold's context and gives the lock back. Call it when the work
// is over, also after a loss. It may be called again, and by several goroutines:
// all wait for the one release.
//
// At least one request is sent, with a time limit of its own, even if ctx has
// ended. Failures are retried until ctx ends or the lease has expired anyway; the
// error then says that the lock may stay taken until its expiry, and a last clean-up
// goes on in the background. To release what is already lost is no error.
func (h *Hold) Release(ctx context.Context) error {
	if kept, first := h.BeginRelease(); first {
		if kept && ctx.Err() == nil && h.handOver() {
			h.EndRelease(kept, nil)
			return nil
		}
		err := h.releaseUntilDone(ctx)
		h.EndRelease(kept, err)
		return err
	}
	r := h.release.Load()
	select {
	case <-r.done:
	case <-ctx.Done():
		if !cause.IsClosed(r.done) {
			return fmt.Errorf("holdfast: release %q: %w", h.Name(), cause.Of(ctx))
		}
	}
	return r.err
}

// letGo begins the release, once: it ends the hold's context and its renewal. kept says
// whether the lease was kept until now.
func (h *Hold) BeginRelease() (kept, first bool) {
	if !h.release.CompareAndSwap(nil, &release{began: h.client.now(), done: make(chan struct{})}) {
		return false, false
	}
	h.cancel(cause.ErrReleased)
	return h.client.renewer.Remove(&h.entry), true
}

// gaveBack ends a release.
func (h *Hold) EndRelease(kept bool, err error) {
	c, k := h.client, &h.entry
	if err == nil && kept {
		k.Report(event.Released, "", nil)
	}
	if err != nil {
		h.inDoubt.Note(c.now() + k.Timing.TTL)
	}
	if h.inDoubt.any && c.now() < h.inDoubt.until && !errors.Is(err, driver.ErrClosed) {
		c.CleanUp(k.Lease, h.inDoubt.until, k.Timing.RequestTimeout, k.Emit)
	}
	c.queues.freed(h, h.yieldUntil())
	c.mu.Lock()
	delete(c.holds, h)
	c.mu.Unlock()
	r := h.release.Load()
	r.err = err
	close(r.done)
	if over := h.policy.Over; over != nil {
		over(h, true)
	}
	c.work.Done()
}

// giveBack sends the release, again and again if need be. The calls carry ctx's
// values only: a canceled caller is the usual reason to release.
func (h *Hold) releaseUntilDone(ctx context.Context) error {
	values := context.WithoutCancel(ctx)
	for n := 0; ; n++ {
		pause, err := h.TryRelease(values, n)
		if pause == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-h.client.base.Done():
		}
		if ctx.Err() != nil || h.client.base.Err() != nil {
			return h.leftToExpire(err)
		}
	}
}

// tryGiveBack sends one release, number n. With a pause, it is to be tried again then.
func (h *Hold) TryRelease(ctx context.Context, n int) (pause time.Duration, err error) {
	c, k := h.client, &h.entry
	err = c.releaseOnce(ctx, k.Lease, k.Timing.RequestTimeout)
	if err == nil || errors.Is(err, driver.ErrLost) {
		return 0, nil
	}
	k.Report(event.Error, "release", err)
	if driver.OutcomeKnown(err) {
		return 0, err
	}
	pause = k.Timing.Backoff(n)
	if over := k.LossAt() + k.Timing.Grace; c.base.Err() != nil || c.now()+pause >= over {
		return 0, h.leftToExpire(err)
	}
	return pause, err
}

func (h *Hold) leftToExpire(err error) error {
	return fmt.Errorf("holdfast: release %q: outcome unknown, it may stay taken until its lease expires: %w", h.Name(), err)
}

// finish releases a hold whose function is over. It bounds how long the caller is
// kept for a backend that does not answer: the clean-up goes on behind.
func (h *Hold) Finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.entry.Timing.Share(3, 30*time.Second))
	defer cancel()
	_ = h.Release(ctx) // told to the observers
}

// verdict joins a function's own error with the end of its lease, if that was not
// kept until the function had returned.
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

// ReleaseErr is the result of the release that is over.
func (h *Hold) ReleaseErr() error { return h.release.Load().err }
