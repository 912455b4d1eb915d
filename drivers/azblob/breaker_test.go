package azblob

import (
	"context"
	"errors"
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

// A holder has the lease before it writes its record. If it writes that between the driver's read and its break, the break
// starts again, and ends this holder's lease: a break that has succeeded has broken whoever held the lock.
func TestBreakOfAHolderThatWritesItsRecord(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	for way, breakIt := range map[string]func(context.Context, string, driver.BreakTarget) error{"Break": l.Break, "BreakNow": l.BreakNow} {
		for _, before := range []string{"no record", "a record"} {
			name := "job-" + way + "-" + before
			req := request(name)
			b := other.lockBlob(name, req.ID.Reveal())
			var err error
			if before == "a record" {
				used(t, other, name)
			} else {
				err = other.createBlob(bounded(t), b)
			}
			if err = errors.Join(err, other.takeLease(bounded(t), b, req.TTL)); err != nil {
				t.Fatal(err)
			}
			var held driver.Lease
			w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				held = acquire(t, other, req) // takes its own lease again, and writes the record
				return base.RoundTrip(r)
			})
			if err := breakIt(bounded(t), name, driver.BreakAnybody()); err != nil {
				t.Errorf("%s before %s: %v", way, before, err)
			}
			if _, err := other.Renew(bounded(t), held); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s with %s of before has broken nothing: renewing returned %v, want ErrLost", way, before, err)
			}
		}
	}
}

// Nobody is broken where the lock is free, also by its last token: who takes the lease at that moment leaves the ETag as it is.
func TestBreakOfAFreeLockBreaksNobody(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	for way, breakIt := range map[string]func(context.Context, string, driver.BreakTarget) error{"Break": l.Break, "BreakNow": l.BreakNow} {
		last := used(t, other, way)
		for _, target := range []driver.BreakTarget{driver.BreakToken(last.Token), driver.BreakAnybody()} {
			w.take()
			w.next(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				next := request(way)
				if err := other.takeLease(bounded(t), other.lockBlob(way, next.ID.Reveal()), next.TTL); err != nil {
					t.Error(err)
				}
				return base.RoundTrip(r)
			})
			if err := breakIt(bounded(t), way, target); err != nil || w.count(reqBreak) > 0 {
				t.Errorf("%s of a free lock: %d requests to break a lease, error %v", way, w.count(reqBreak), err)
			}
		}
	}
}

// expired makes a lock that was released look as if its lease had expired.
func expired(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := base.RoundTrip(r)
	if err == nil {
		resp.Header.Set("x-ms-lease-state", "expired")
	}
	return resp, err
}

// An expired lease, which its holder could renew, is taken and released. So nobody is broken who takes it, or has just done so.
func TestBreakOfAnExpiredLease(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	last := acquire(t, other, request("n"))
	for _, target := range []driver.BreakTarget{driver.BreakToken(last.Token), driver.BreakAnybody()} {
		release(t, other, last)
		w.take()
		w.next(reqRead, expired)
		if err := l.Break(bounded(t), "n", target); err != nil || w.count(reqAcquire) != 1 || w.count(reqRelease) != 1 || w.count(reqBreak) != 0 {
			t.Errorf("%v: error %v, requests %v", target, err, w.take())
		}
		renewed := acquire(t, other, request("n")) // nobody has it
		w.take()
		w.next(reqRead, expired)
		target = driver.BreakAnybody()
		if err := l.Break(bounded(t), "n", target); err != nil || w.count(reqBreak) != 1 { // the lease that was seen, renewed
			t.Errorf("renewed meanwhile: error %v, requests %v", err, w.take())
		}
		if _, err := other.Renew(bounded(t), renewed); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a renewal after the break: %v", err)
		}
		release(t, other, renewed)

		next := request("n")
		w.take()
		w.next(reqRead, expired)
		w.next(reqAcquire, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			if err := other.takeLease(bounded(t), other.lockBlob("n", next.ID.Reveal()), next.TTL); err != nil {
				t.Error(err)
			}
			return base.RoundTrip(r)
		})
		if err := l.Break(bounded(t), "n", target); err != nil || w.count(reqBreak) != 0 {
			t.Errorf("taken meanwhile: error %v, requests %v", err, w.take())
		}
		last = acquire(t, other, next)
	}
	for way, breakIt := range map[string]func(context.Context, string, driver.BreakTarget) error{"Break": l.Break, "BreakNow": l.BreakNow} {
		release(t, other, last)
		w.take()
		w.next(reqRead, expired)
		w.next(reqAcquire, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			last = acquire(t, other, request("n")) // with its record
			return base.RoundTrip(r)
		})
		if err := breakIt(bounded(t), "n", driver.BreakAnybody()); err != nil || w.count(reqBreak) != 0 {
			t.Errorf("%s, granted meanwhile: error %v, requests %v", way, err, w.take())
		}
		if _, err := other.Renew(bounded(t), last); err != nil {
			t.Errorf("%s, granted meanwhile: %v", way, err)
		}
	}
}

// A lock that was granted and released meanwhile, or removed, is left alone.
func TestBreakOfALeaseThatHasExpiredAndGone(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	used(t, other, "n")
	w.next(reqRead, expired)
	w.next(reqAcquire, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		used(t, other, "n")
		return base.RoundTrip(r)
	})
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil || w.count(reqRelease) != 0 {
		t.Errorf("released meanwhile: error %v, requests %v", err, w.take())
	}
	w.next(reqRead, expired)
	w.next(reqAcquire, respond(http.StatusNotFound, "BlobNotFound"))
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Errorf("removed meanwhile: %v", err)
	}
}

// Of an expired lease that is taken, the answer may be lost, or its release may be refused.
func TestBreakOfAnExpiredLeaseInDoubt(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	last := used(t, other, "lost")
	w.next(reqRead, expired)
	w.next(reqAcquire, unanswered)
	if err := l.Break(bounded(t), "lost", driver.BreakToken(last.Token)); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("the answer is lost: %v", err)
	}
	if r, err := other.Inspect(bounded(t), "lost"); err != nil || r.State != driver.StateFree {
		t.Errorf("afterwards: %v, %v", r.State, err)
	}
	last = used(t, other, "a proxy")
	w.next(reqRead, expired)
	w.next(reqAcquire, respondAfter(http.StatusForbidden, "", "X-Ms-Request-Id", ""))
	if err := l.Break(bounded(t), "a proxy", driver.BreakToken(last.Token)); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("a proxy answers: %v", err)
	}
	if r, err := other.Inspect(bounded(t), "a proxy"); err != nil || r.State != driver.StateFree {
		t.Errorf("after a proxy's answer: %v, %v", r.State, err)
	}
	last = used(t, other, "refused")
	w.next(reqRead, expired)
	w.next(reqRelease, respond(http.StatusForbidden, "AuthorizationPermissionMismatch"))
	if err := l.Break(bounded(t), "refused", driver.BreakToken(last.Token)); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("the release is refused: %v", err)
	}
	// Another break meets the lease of this one, which nobody holds.
	last = used(t, other, "twice")
	two, w2 := store.lockerWithFaults()
	w.next(reqRead, expired)
	w.next(reqRelease, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		w2.next(reqRead, expired)
		if err := two.Break(bounded(t), "twice", driver.BreakToken(last.Token)); err != nil {
			t.Errorf("the second break: %v", err)
		}
		return base.RoundTrip(r)
	})
	if err := l.Break(bounded(t), "twice", driver.BreakToken(last.Token)); err != nil {
		t.Errorf("the first break: %v", err)
	}
}

// A lease that is broken already runs out by itself. A second request could come after its end, when somebody else has it.
func TestSecondBreakBreaksNobody(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	holder := acquire(t, store.locker(), request("n"))
	for _, target := range []driver.BreakTarget{driver.BreakToken(holder.Token), driver.BreakAnybody(), driver.BreakToken(holder.Token)} {
		if err := l.Break(bounded(t), "n", target); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(reqBreak); n != 1 {
		t.Errorf("%d requests to break one lease", n)
	}
	if err := l.BreakNow(bounded(t), "n", driver.BreakToken(holder.Token)); err != nil || w.count(reqBreak) != 2 {
		t.Errorf("BreakNow of a lease that runs out: error %v, %d requests", err, w.count(reqBreak))
	}
}

// The same in each round: a blob that never stays the same is an error, and no success.
func TestBreakOfABlobThatKeepsChanging(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	other := store.locker()
	held := acquire(t, other, request("n"))
	at := grantRevision(held)
	w.all(reqBreak, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		if err := other.WriteData(bounded(t), held, []byte("x"), at); err != nil {
			t.Error(err)
		}
		at = at.Next()
		return base.RoundTrip(r)
	})
	if err := l.BreakNow(bounded(t), "n", driver.BreakAnybody()); !errors.Is(err, errChanging) {
		t.Errorf("got %v, want %v", err, errChanging)
	}
	if _, err := other.Renew(bounded(t), held); err != nil {
		t.Errorf("the holder that was not broken: %v", err)
	}
}
