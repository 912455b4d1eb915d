package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
)

// waitUntilGranted sends requests until the lock is granted, an error is final, or ctx has ended. err is why
// the lock was not granted, if that is known. w is the caller's place in the queue.
func (a *Acquisition) waitUntilGranted(ctx context.Context, w *localWaiter) (g Grant, granted bool, err error) {
	if ctx.Err() != nil {
		return Grant{}, false, nil
	}
	changed := make(chan struct{}, 1)
	a.changed = func() { notify(changed) }
	a.join()
	g, err = a.sendFirst(ctx, changed, w)
	for watched := false; err != nil && ctx.Err() == nil && !a.isFinal(err); g, err = a.Try(ctx) {
		a.Identify(ctx)
		a.client.queues.note(a.name, err)
		if !watched {
			defer a.Watch()()
			watched = true
		}
		if a.waitForNext(ctx, changed, w); ctx.Err() != nil {
			return Grant{}, false, a.lastErr()
		}
	}
	if err != nil && ctx.Err() != nil {
		err = cmp.Or(a.lastErr(), err)
	}
	return g, err == nil, err
}

// isFinal reports whether the caller gets the error instead of waiting on.
func (a *Acquisition) isFinal(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(err, driver.ErrClosed):
		return true
	case errors.Is(err, driver.ErrInvalid):
		// Promise 9: an election goes on. Its arguments were checked when the runner was made, so what the backend does not allow is
		// something that a person can change there.
		return a.policy.Role == telemetry.Plain
	}
	return driver.Lasting(err) && !a.goesOn()
}

// sendFirst sends the first request of a waiter whose turn it is, after other processes had time to send theirs.
func (a *Acquisition) sendFirst(ctx context.Context, changed <-chan struct{}, w *localWaiter) (Grant, error) {
	if yield := a.client.queues.yieldUntil(w); yield > a.client.now() && !a.queued {
		a.start(yield)
		if a.waitForNext(ctx, changed, w); ctx.Err() != nil {
			return Grant{}, ctx.Err()
		}
	}
	return a.Try(ctx)
}

// start makes requests due at a time, whatever came before.
func (a *Acquisition) start(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiter.Start(at)
}

// waitForNext waits until a request is due, or ctx ends.
func (a *Acquisition) waitForNext(ctx context.Context, changed <-chan struct{}, w *localWaiter) {
	a.omitOwnSlots()
	for ctx.Err() == nil {
		a.mu.Lock()
		_, next := a.waiter.Next()
		noticeAt := a.waiter.NoticeAt()
		a.mu.Unlock()
		now := a.client.now()
		if next <= now {
			return
		}
		timer := time.NewTimer(max(min(next, noticeAt)-now, time.Millisecond))
		select {
		case <-timer.C:
			a.NoteWaiting()
		case <-changed:
			a.client.queues.note(a.name, a.lastErr())
		case <-w.slotFreed:
			a.noteFreed(w)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// noteFreed notes the slots that this process has freed.
func (a *Acquisition) noteFreed(w *localWaiter) {
	now := a.client.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, slot := range a.client.queues.takeFreed(w) {
		a.perform(a.waiter.SlotFreed(now, slot))
	}
}

// NoteWaiting logs that the caller waits, if that is due.
func (a *Acquisition) NoteWaiting() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiter.Notice(a.client.now(), func(owner string, token uint64, waited time.Duration) bool {
		at := time.Now()
		_, report := a.client.notices.Note("", a.name, at)
		if report {
			a.client.observers.log(event.Event{Type: event.Waiting, Name: a.name, Owner: owner, Token: token, Time: at,
				Waited: waited, Leader: a.policy.Role == telemetry.Leader})
		}
		return report
	})
}
