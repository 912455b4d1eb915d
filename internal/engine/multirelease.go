package engine

import (
	"context"
	"time"
)

// Release ends the context and releases all locks, in one request where the backend can. All calls wait for the one
// release of each lock. A nil ctx counts as context.Background.
func (m *MultiHold) Release(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	m.client.releaseTogether(ctx, m.members)
	var failed Failures
	for _, h := range m.members {
		if err := h.awaitRelease(ctx); err != nil {
			failed.Add(h.Name(), err)
		}
	}
	return failed.Err("release")
}

// finish releases the hold after its function has returned or panicked. It waits for a limited time; see Hold.Finish.
func (m *MultiHold) finish(ctx context.Context) {
	// Promise 7: the release does not end with the caller's context.
	m.client.finishTogether(context.WithoutCancel(ctx), m.members)
}

// finishTogether releases holds of one caller, and waits for a limited time.
func (c *Client) finishTogether(ctx context.Context, holds []*Hold) {
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holds[0].entry.Timing.Share(3, 30*time.Second))
	defer cancel()
	c.releaseTogether(ctx, holds) // a failure is reported to the observers
}

// releaseTogether releases those of the holds whose release has not begun. As with one hold, at least one request is
// sent for each, also if ctx has ended, and failures are retried until ctx ends or the leases have expired.
func (c *Client) releaseTogether(ctx context.Context, holds []*Hold) {
	own := &ownReleases{inTime: map[*Hold]bool{}}
	defer own.endAll(func(*Hold) error { return errPanicked }) // after a panic of the driver that the caller recovers
	for _, h := range holds {
		// Promise 1: all contexts end before the first request is sent.
		if inTime, first := h.BeginRelease(); first {
			own.holds, own.inTime[h] = append(own.holds, h), inTime
		}
	}
	failed := map[*Hold]error{}
	for n := 0; len(own.inTime) > 0; n++ {
		var again time.Duration
		for h, err := range c.sendReleases(ctx, own.left(), n > 0) {
			retryIn, err := h.noteRelease(n, err)
			if retryIn == 0 {
				own.end(h, err)
				continue
			}
			failed[h] = err
			if again == 0 || retryIn < again {
				again = retryIn
			}
		}
		if again == 0 {
			return
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-c.base.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || c.base.Err() != nil {
			own.endAll(func(h *Hold) error { return h.leftToExpire(failed[h]) })
		}
	}
}

// ownReleases are the releases that one call of releaseTogether has begun.
type ownReleases struct {
	holds  []*Hold
	inTime map[*Hold]bool // of those that have not ended: the result of BeginRelease
}

// left lists those that have not ended.
func (o *ownReleases) left() (left []*Hold) {
	for _, h := range o.holds {
		if _, ok := o.inTime[h]; ok {
			left = append(left, h)
		}
	}
	return left
}

func (o *ownReleases) end(h *Hold, err error) {
	inTime := o.inTime[h]
	delete(o.inTime, h)
	h.EndRelease(inTime, err)
}

func (o *ownReleases) endAll(why func(*Hold) error) {
	for _, h := range o.left() {
		o.end(h, why(h))
	}
}

// sendReleases sends a release of each hold, at first in one call where the backend can, and yields the results.
func (c *Client) sendReleases(ctx context.Context, holds []*Hold, retry bool) func(yield func(*Hold, error) bool) {
	sent := make([]*waitingRelease, len(holds))
	for i, h := range holds {
		sent[i] = c.releases.prepare(h.releaseContext(ctx), h.entry.Lease, h.entry.Timing.RequestTimeout)
	}
	await := c.releases.sendAll(sent, retry)
	return func(yield func(*Hold, error) bool) {
		for i, h := range holds {
			if !yield(h, await(sent[i])) {
				return
			}
		}
	}
}
