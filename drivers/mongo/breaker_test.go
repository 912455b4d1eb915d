package mongo

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

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
