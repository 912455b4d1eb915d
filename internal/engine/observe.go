package engine

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// minObserve is the least time between two reads of an observer, however often the backend's
// Watcher calls.
const minObserve = 50 * time.Millisecond

// Observe yields the record of a lock, and again whenever its holder changes.
func (c *Client) Observe(ctx context.Context, name string, s settings.Settings) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		ctx, stop := cause.Join(ctx, c.closing)
		defer stop()
		changed := make(chan struct{}, 1)
		watched := c.capabilities.Watcher != nil
		if watched {
			defer c.capabilities.Watcher.Watch(name, func() { notify(changed) })()
		}
		var seen driver.Record
		for first, failures := true, 0; ctx.Err() == nil; {
			r, err := c.inspect(ctx, name, s.RequestTimeout)
			var wait time.Duration
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(driver.Record{}, err) {
					return
				}
				wait = max(s.Backoff(failures), minObserve)
				failures++
			default:
				if (first || changedHolder(seen, r)) && !yield(r, nil) {
					return
				}
				seen, first, failures = r, false, 0
				wait = nextRead(r, s, watched)
			}
			select {
			case <-time.After(minObserve):
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(wait - minObserve):
			case <-onlyIf(err == nil, changed): // a backend that fails is left alone for the whole backoff
			case <-ctx.Done():
			}
		}
	}
}

// changedHolder reports whether another has become the holder, or the holder has gone.
func changedHolder(before, now driver.Record) bool {
	return before.State != now.State || before.Token != now.Token || before.Owner != now.Owner || before.Broken != now.Broken
}

// nextRead is how long to wait if nothing reports a change.
func nextRead(r driver.Record, s settings.Settings, watched bool) time.Duration {
	poll := s.Poll
	if watched {
		poll = s.WatchedPoll
	}
	wait := clock.Jitter(poll, 0.2)
	if r.State == driver.StateHeld && r.RemainingKnown && r.Remaining > 0 {
		wait = min(wait, r.Remaining+time.Millisecond)
	}
	return max(wait, minObserve)
}

// onlyIf returns the channel if the condition holds, and else one that nothing ever comes from.
func onlyIf[T any](condition bool, c <-chan T) <-chan T {
	if condition {
		return c
	}
	return nil
}
