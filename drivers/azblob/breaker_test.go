package azblob

import (
	"context"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Breaking a lease that is broken already succeeds.
func TestBreakOfABrokenLease(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	acquire(t, l, request("n"))
	w.all(reqBreak, respond(http.StatusConflict, "LeaseAlreadyBroken"))
	for what, breakIt := range map[string]func(context.Context, string, driver.BreakTarget) error{"Break": l.Break, "BreakNow": l.BreakNow} {
		if err := breakIt(bounded(t), "n", driver.BreakAnybody()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A break is never sent twice: the second request could break the next holder's lease.
func TestBreakIsSentOnce(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	for what, breakIt := range map[string]func() error{
		"Break":    func() error { return l.Break(bounded(t), "n", driver.BreakAnybody()) },
		"BreakNow": func() error { return l.BreakNow(bounded(t), "n", driver.BreakAnybody()) },
	} {
		lease := acquire(t, l, request("n"))
		w.take()
		w.next(reqBreak, unanswered)
		if err := breakIt(); err == nil || driver.OutcomeKnown(err) {
			t.Errorf("%s without an answer: %v", what, err)
		}
		if n := w.count(reqBreak); n != 1 {
			t.Errorf("%s was sent %d times", what, n)
		}
		release(t, l, lease)
	}
}
