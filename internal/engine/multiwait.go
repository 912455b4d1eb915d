package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// The locks of a MultiHold are acquired one after another, in the order of the names. A caller first tries to get all of
// them without waiting, unless others of its process wait already. If one is taken, it releases the others, and waits for
// one name after another, as any waiter of that name does. It keeps those that it was granted.
//
// Two such calls never deadlock with each other, if their callers hold no other locks meanwhile: who holds locks waits only
// for names behind all of theirs.
//
// A caller holds locks in vain for a limited time only, its patience. Then it releases everything. It keeps its position
// among the waiters of the lock that was taken, and waits for that one holding nothing. Once it is granted that lock, it
// tries to get the others, without waiting, and if it fails it begins again, without a position. So names that are held for
// hours do not keep the other names waiting. This also ends deadlocks with programs that wait for a MultiHold while they
// hold one of its names by another context.
//
// Patience is a part of the time that the caller itself has waited, up to a limit: the TTL, because others wait so long for
// a holder that has crashed. Each time that this was too short, the limit doubles, so that no caller starves, however long
// the names are held.
const (
	leastPatience = time.Second
	patiencePolls = 3 // where nothing wakes waiters, they have to poll before they give up
	patiencePart  = 4
	mostPolling   = 15 * time.Second // for these polls
)

// MaxNames is how many names a MultiHold may have.
const MaxNames = 100

// multiWait is one call that acquires a MultiHold.
type multiWait struct {
	*Client
	multi    *MultiHold
	settings settings.Settings
	emit     Emit
	began    time.Duration
	most     time.Duration // the limit of the patience
	heldAt   time.Duration // when the first of held was granted; later by the time of requests that were granted at once
	held     []*Hold
	gaveUp   bool   // the patience has ended, or a lock was lost, since it was last set to false
	taken    string // the name whose lock was last refused
	why      error  // of that refusal
}

// MultiSettings checks the names of a MultiHold and resolves its options. It returns the names in order, without duplicates.
func (c *Client) MultiSettings(names []string, cfg settings.Config) ([]string, settings.Settings, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 || len(names) > MaxNames {
		return nil, settings.Settings{}, driver.Invalid("names", fmt.Sprintf("of %d locks", len(names)),
			fmt.Sprintf("of 1 to %d different locks", MaxNames))
	}
	s, err := cfg.Resolve(c.info.Limits)
	if err != nil {
		return nil, s, err
	}
	if err := s.OnlyExclusive("a hold of several names"); err != nil {
		return nil, s, err
	}
	if s.Slots != 1 {
		return nil, s, driver.Invalid("Slots", fmt.Sprint(s.Slots), "1 for a hold of several names")
	}
	for _, name := range names {
		if err := ValidateSlots(name, s.Slots, c.info.Limits); err != nil {
			return nil, s, err
		}
	}
	return names, s, nil
}

// WaitAcquireAll waits until all locks are granted, ctx ends or Shutdown begins. The names are those of MultiSettings. The
// hold's context descends from parent. A managed hold is released by a function that owns it, not by Shutdown.
func (c *Client) WaitAcquireAll(ctx, parent context.Context, names []string, s settings.Settings, managed bool) (*MultiHold, error) {
	for _, name := range names {
		if h := c.heldWithin(ctx, name, s.Slots); h != nil {
			return nil, errSelfDeadlock(name, h)
		}
	}
	return c.acquireAll(ctx, parent, names, s, managed, (*multiWait).wait)
}

// TryAcquireAll makes one attempt for each name. If one is refused, the others are released.
func (c *Client) TryAcquireAll(ctx, parent context.Context, names []string, s settings.Settings, managed bool) (*MultiHold, error) {
	return c.acquireAll(ctx, parent, names, s, managed, (*multiWait).try)
}

// acquireAll lets a function acquire the locks. If it fails, those that were granted are released.
func (c *Client) acquireAll(
	ctx, parent context.Context, names []string, s settings.Settings, managed bool, acquire func(*multiWait, context.Context) error,
) (*MultiHold, error) {
	w := &multiWait{Client: c, multi: c.newMultiHold(parent, names, managed), settings: s, emit: c.EmitTo(s.Observers), began: c.now(),
		most: s.TTL}
	done := false
	defer func() {
		if !done { // also after a panic of the driver that the caller recovers
			w.multi.cancel(nil)
			w.letGo(ctx)
		}
	}()
	if err := acquire(w, ctx); err != nil {
		return nil, err
	}
	done = true
	return w.multi, nil
}

// try makes one attempt for each name.
func (w *multiWait) try(ctx context.Context) error {
	for _, name := range w.multi.names {
		if err := w.tryOne(ctx, name); err != nil {
			return err
		}
	}
	return w.multi.complete(w.held)
}

func (w *multiWait) tryOne(ctx context.Context, name string) error {
	h, err := w.tryOnce(ctx, w.multi.Context(), name, w.settings, w.emit, w.multi.managed, w.multi)
	if err == nil {
		w.add(h)
	} else if ctx.Err() == nil {
		w.taken, w.why = name, err
	}
	return err
}

func (w *multiWait) add(h *Hold) {
	if len(w.held) == 0 {
		w.heldAt = w.now()
	}
	w.held = append(w.held, h)
}

// wait acquires the locks by the rules above.
func (w *multiWait) wait(ctx context.Context) error {
	all := !w.queues.awaited(w.multi.names) && w.tryOthers(ctx, -1)
	if !all && ctx.Err() == nil && (driver.Lasting(w.why) || errors.Is(w.why, driver.ErrInvalid)) {
		return w.why
	}
	for !all || w.multi.complete(w.held) != nil { // complete fails if one was lost meanwhile
		w.letGo(ctx)
		if ctx.Err() != nil || w.closing.Err() != nil {
			return w.WaitEnded(ctx, cmp.Or(w.taken, w.multi.names[0]), w.why)
		}
		alone, err := w.waitInOrder(ctx)
		if err != nil {
			return err
		}
		all = alone < 0 || w.tryOthers(ctx, alone)
	}
	return nil
}

// tryOthers tries to get the locks of all names but one, which is held already, or -1. Whatever the error of one is, a
// wait handles it later.
func (w *multiWait) tryOthers(ctx context.Context, but int) (all bool) {
	for i, name := range w.multi.names {
		if i != but && w.tryOne(ctx, name) != nil {
			return false
		}
	}
	return true
}

// beside calls watch in another goroutine while wait runs, after which the context of watch ends. A panic of watch calls
// cancel, which must end wait, and goes on here.
func beside(ctx context.Context, cancel func(), watch func(context.Context), wait func()) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan any, 1)
	go func() {
		defer func() {
			p := recover()
			if p != nil {
				cancel()
			}
			done <- p
		}()
		watch(watching)
	}()
	defer func() {
		stop()
		if p := <-done; p != nil {
			panic(p)
		}
	}()
	wait()
}

// waitInOrder waits for one name after another. If it gives that up, it returns when it holds one lock alone, that of name
// number alone; otherwise alone is -1.
func (w *multiWait) waitInOrder(ctx context.Context) (alone int, err error) {
	w.gaveUp = false
	for i, name := range w.multi.names {
		if err := w.waitFor(ctx, name); err != nil {
			return 0, err
		}
		if w.gaveUp {
			return i, nil
		}
	}
	return -1, nil
}

// waitFor waits for one lock. What is held meanwhile is released when the patience ends or one of the locks is lost; the
// wait goes on, so the position among the waiters stays until it is granted this lock.
func (w *multiWait) waitFor(ctx context.Context, name string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var h *Hold
	defer func() {
		if h != nil {
			w.add(h) // also after a panic: then it is released with the others
		}
	}()
	start := w.now()
	wait := func() {
		h, err = w.waitMeasured(ctx, w.multi.Context(), name, w.settings, w.emit, w.multi.managed, w.multi)
	}
	if len(w.held) == 0 {
		wait()
		return err
	}
	beside(ctx, cancel, func(until context.Context) { w.holdWhilePatient(ctx, until.Done()) }, wait)
	if h != nil && !h.Lease().Contended { // nothing was in vain
		w.heldAt += w.now() - start
	}
	return err
}

// least returns how long a caller may hold locks in vain in any case.
func (w *multiWait) least() time.Duration {
	if w.capabilities.Waker != nil {
		return leastPatience
	}
	return max(leastPatience, min(patiencePolls*waiterSettings(w.settings).PollInterval(false, false, 0), mostPolling))
}

// holdWhilePatient releases all that is held when the patience ends or one of the locks is lost.
func (w *multiWait) holdWhilePatient(ctx context.Context, stopped <-chan struct{}) {
	now := w.now()
	patience := max(w.least(), min((now-w.began)/patiencePart, w.most))
	due := time.NewTimer(w.heldAt + patience - now)
	defer due.Stop()
	for !slices.ContainsFunc(w.held, func(h *Hold) bool { return h.ended.Load() != nil }) {
		select {
		case <-w.multi.lost:
			continue
		case <-stopped:
			return
		case <-due.C:
			if patience >= w.most {
				w.most *= 2
			}
		}
		break
	}
	w.gaveUp = true
	w.letGo(ctx)
}

// letGo releases what is held.
func (w *multiWait) letGo(ctx context.Context) {
	w.finishTogether(ctx, w.held)
	w.held = nil
}
