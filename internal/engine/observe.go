package engine

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// minReadInterval is the least time between two reads of Observe, however often the backend's
// Waker calls.
const minReadInterval = 50 * time.Millisecond

// Observe yields the record of a lock, and again whenever its holder changes. It yields each
// failure to read the record, and reads again after a backoff. It ends with ctx and with
// Shutdown.
func (c *Client) Observe(ctx context.Context, name string, s settings.Settings) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		ctx, stop := cause.Join(ctx, c.closing)
		defer stop()
		// The joined context ends a moment after Shutdown began, and a closed Locker fails.
		ended := func() bool { return ctx.Err() != nil || c.closing.Err() != nil }
		wakeUps := make(chan struct{}, 1)
		var watching atomic.Bool
		if c.Watches() {
			defer c.capabilities.Waker.Wake(name, "", func(up driver.Wakeup) {
				watching.Store(up.Kind != driver.WakingEnded)
				notify(wakeUps)
			})()
		}
		var last driver.Record
		var since time.Duration // when the holder was first seen
		freeReads := 0          // in a row
		for first, failures := true, 0; !ended(); {
			r, err := c.inspect(ctx, name, s.RequestTimeout)
			var wait time.Duration
			var wake <-chan struct{}
			switch {
			case ended():
				return
			case err != nil:
				if !yield(driver.Record{}, err) {
					return
				}
				wait = max(s.Backoff(failures), minReadInterval) // without wake-ups: a failing backend is left alone
				failures++
			default:
				if first || holderChanged(last, r) {
					freeReads, since = 0, c.now()
					if !yield(r, nil) {
						return
					}
				}
				last, first, failures = r, false, 0
				wait, wake = nextRead(r, s, watching.Load(), c.now()-since), wakeUps
				if r.State == driver.StateFree { // no wake-up reports that it is taken, often soon
					wait = min(wait, timing.Backoff(freeReads, 2*minReadInterval, wait))
					freeReads++
				}
			}
			select {
			case <-time.After(minReadInterval):
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(wait - minReadInterval):
			case <-wake:
			case <-ctx.Done():
			}
		}
	}
}

// holderChanged reports whether a lock has another holder than before, or its state has changed.
func holderChanged(before, now driver.Record) bool {
	if now.State == driver.StateHeld && before.State == driver.StateHeld && now.Owner == "" && before.Owner != "" {
		// Azure Blob Storage: the holder is unknown until it has written its owner and token.
		return before.Broken != now.Broken || before.Endless != now.Endless
	}
	return before.State != now.State || before.Token != now.Token || before.Owner != now.Owner || before.Broken != now.Broken ||
		before.Endless != now.Endless
}

// nextRead is how long to wait for the next read, unless a wake-up comes first, of a lock whose
// record has been the same for so long.
func nextRead(r driver.Record, s settings.Settings, watching bool, unchanged time.Duration) time.Duration {
	poll := s.Poll
	switch {
	case r.State == driver.StateHeld:
		poll = waiterSettings(s).PollInterval(watching, r.Broken, unchanged)
	case watching:
		poll = s.WatchedPoll
	}
	wait := timing.Jitter(poll, 0.2)
	if r.State == driver.StateHeld && r.RemainingKnown && r.Remaining > 0 {
		wait = min(wait, r.Remaining+time.Millisecond)
	}
	return max(wait, minReadInterval)
}
