package mongo

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A broken lease ends when it would have ended: neither a renewal nor a repeated acquire
// extends it.
func TestBrokenLeaseIsNotExtended(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	req := request("n", "a")
	lease := acquire(t, l, req)
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	before := storedDocument(t, coll, "n")
	req.TTL, lease.TTL = time.Hour, time.Hour
	if r := wantHeld(t, l, req); !r.Broken {
		t.Errorf("the record does not say that it is broken: %+v", r)
	}
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if after := storedDocument(t, coll, "n"); !slices.Equal(before, after) {
		t.Errorf("changed from %v to %v", before, after)
	}
}

// A break that arrives late does not affect the next holder.
func TestLateBreak(t *testing.T) {
	t.Parallel()
	l, dialer := newDelayedLocker(t)
	ctx := bounded(t)
	for what, call := range map[string]func(context.Context) error{
		"break":     func(ctx context.Context) error { return l.Break(ctx, "n", driver.BreakAnybody()) },
		"break now": func(ctx context.Context) error { return l.BreakNow(ctx, "n", driver.BreakAnybody()) },
	} {
		first := acquire(t, l, request("n", what+" first"))
		wantUnknown(t, dialer.callDelayed(t, call, "update\x00", fieldBroken))
		if err := l.Release(ctx, first); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, l, request("n", what+" next"))
		if n := dialer.deliver(t); n != 0 {
			t.Errorf("%s: the late command matched %d documents", what, n)
		}
		if _, err := l.Renew(ctx, next); err != nil {
			t.Errorf("%s: the next holder: %v", what, err)
		}
		if err := l.Release(ctx, next); err != nil {
			t.Fatal(err)
		}
	}
}

// A waiter that enters the queue between the read of a break and its update is woken.
func TestBreakNowWakesAWaiterThatHasJustCome(t *testing.T) {
	t.Parallel()
	base, h := mongotest.Collection(t), &hooks{}
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(h.monitor()))
	l, waiting := newTestLocker(t, through(client, base)), newTestLocker(t, base)
	acquire(t, l, longRequest("job", "holder"))
	waiter := request("job", "waiter")
	waiter.QueueFor = time.Minute
	woken := wokenBy(t, waiting, "job")
	eventually(t, "an open cursor", waiting.queue.isOpen)
	h.before("update "+base.Name(), func() { wantHeld(t, waiting, waiter) })
	wantNil(t, l.BreakNow(bounded(t), "job", driver.BreakAnybody()))
	wantWoken(t, woken, "by the break")
}

// The read after a break fails. The break is certain all the same, and wakes the waiters that were there before.
func TestBreakNowWithoutItsLastRead(t *testing.T) {
	t.Parallel()
	v := newVictim(t, nil)
	waiting := newTestLocker(t, v.base)
	acquire(t, v.Locker, longRequest("job", "holder"))
	waiter := request("job", "waiter")
	waiter.QueueFor = time.Minute
	woken := wokenBy(t, waiting, "job")
	wantHeld(t, waiting, waiter)
	awaitFollowed(t, waiting, "job")
	v.fail(t, docOf("skip", 1), list{"find"}, field("errorCode", codeBadValue))
	wantNil(t, v.BreakNow(bounded(t), "job", driver.BreakAnybody()))
	wantWoken(t, woken, "by the break")
}
