package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// scriptedSource opens cursors as a test says. open returns how long a cursor lasts, or an error. A cursor
// that lasts for a negative time is never answered.
type scriptedSource struct {
	mu     sync.Mutex
	opened []time.Time
	open   func(n int) (lasts time.Duration, err error)
}

func (s *scriptedSource) source(await time.Duration) source {
	return source{await: await, open: func(context.Context) (eventCursor, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened = append(s.opened, time.Now())
		lasts, err := s.open(len(s.opened))
		if err != nil {
			return nil, err
		}
		return &scriptedCursor{lasts: lasts}, nil
	}}
}

// gaps returns the times between the openings.
func (s *scriptedSource) gaps() (gaps []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.opened[1:] {
		gaps = append(gaps, s.opened[i+1].Sub(s.opened[i]))
	}
	return gaps
}

type scriptedCursor struct {
	lasts time.Duration
	err   error
}

func (c *scriptedCursor) Err() error                { return c.err }
func (*scriptedCursor) Close(context.Context) error { return nil }
func (*scriptedCursor) wakes() (key waitqueue.Key, after time.Duration, ok bool) {
	return key, 0, false
}

func (c *scriptedCursor) TryNext(ctx context.Context) bool {
	if c.lasts < 0 {
		<-ctx.Done()
		c.err = ctx.Err()
		return false
	}
	time.Sleep(c.lasts)
	c.err = errors.New("the cursor was lost")
	return false
}

// A server that does not answer, as one that is frozen, is given up soon after the time for which it may
// hold a request.
func TestRequestForHintsHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const await = 30 * time.Second
		s := &scriptedSource{open: func(int) (time.Duration, error) { return -1, nil }}
		w := newWatcher(s.source(await), "test.hints", discard, waitqueue.Settings{})
		defer w.close(t.Context())
		defer w.Wake("job", me, func(driver.Wakeup) {})()
		time.Sleep(2 * (await + cursorTimeout))
		if gaps := s.gaps(); len(gaps) == 0 || gaps[0] < await || gaps[0] > await+cursorTimeout+waitqueue.FirstRetry {
			t.Errorf("another cursor was opened after %v, want %v to %v", gaps, await, await+cursorTimeout)
		}
	})
}

// The backoff grows with each failure, and begins again after a cursor that was open for long.
func TestBackoffBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 6
		s := &scriptedSource{open: func(n int) (time.Duration, error) {
			if n%failures == 0 {
				return waitqueue.Stable, nil
			}
			return 0, errors.New("no primary")
		}}
		w := newWatcher(s.source(time.Minute), "test.hints", discard, waitqueue.Settings{})
		defer w.close(t.Context())
		defer w.Wake("job", me, func(driver.Wakeup) {})()
		time.Sleep(2 * time.Minute)
		gaps := s.gaps()
		if len(gaps) < 3*failures {
			t.Fatalf("%d cursors were opened", len(gaps)+1)
		}
		for i, gap := range gaps[:3*failures] {
			failed := i % failures // since the cursor that was open for long, whose end is the first failure
			switch {
			case failed == failures-1: // that cursor
				failed, gap = 0, gap-waitqueue.Stable
			case i >= failures:
				failed++
			}
			least := waitqueue.FirstRetry << failed / 2
			if gap < least || gap > 2*least {
				t.Errorf("after opening %d the backoff was %v, want %v to %v", i+1, gap, least, 2*least)
			}
		}
	})
}

// A waiter is notified that waking has ended, and that it has begun again.
func TestWaitersLearnThatWakingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedSource{open: func(n int) (time.Duration, error) {
			if n == 2 {
				return 0, errors.New("no primary")
			}
			return waitqueue.Stable, nil
		}}
		w := newWatcher(s.source(time.Minute), "test.hints", discard, waitqueue.Settings{})
		defer w.close(t.Context())
		var mu sync.Mutex
		var kinds []driver.WakeupKind
		defer w.Wake("job", me, func(up driver.Wakeup) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, up.Kind)
		})()
		time.Sleep(waitqueue.Stable + time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []driver.WakeupKind{driver.WakingBegan, driver.WakingEnded, driver.WakingBegan}; !slices.Equal(kinds, want) {
			t.Errorf("%v, want %v", kinds, want)
		}
	})
}

// A cursor that opens and soon dies, again and again, wakes nobody during the longer and longer backoff. The
// waiters are notified of that, and a request does not count on hints then.
func TestWaitersLearnThatCursorsDieAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedSource{open: func(int) (time.Duration, error) { return time.Millisecond, nil }}
		w := newWatcher(s.source(time.Minute), "test.hints", discard, waitqueue.Settings{})
		defer w.close(t.Context())
		var mu sync.Mutex
		var last driver.WakeupKind
		defer w.Wake("job", me, func(up driver.Wakeup) {
			mu.Lock()
			defer mu.Unlock()
			last = up.Kind
		})()
		ended := 0
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			if last == driver.WakingEnded {
				ended++
			}
			if w.usable() != (last != driver.WakingEnded) {
				t.Errorf("the watcher is usable: %v, but its last call was %v", w.usable(), last)
			}
			mu.Unlock()
		}
		if ended < 900 { // the first backoffs are short
			t.Errorf("waiters knew that nothing wakes them for %d %% of the time", ended/10)
		}
	})
}

// A cursor that has ended, or could not be opened, occupies no connection.
func TestEndedCursorFreesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedSource{open: func(n int) (time.Duration, error) {
			if n%2 == 0 {
				return 0, errors.New("no primary")
			}
			return waitqueue.Stable, nil
		}}
		w := newWatcher(s.source(time.Minute), "test.hints", discard, waitqueue.Settings{})
		w.connections = &connections{shown: 2}
		defer w.close(t.Context())
		defer w.Wake("job", me, func(driver.Wakeup) {})()
		time.Sleep(time.Minute)
		if n := len(s.gaps()); n < 6 {
			t.Errorf("%d cursors were opened after the first", n)
		}
	})
}

// A refusal that only a person can mend is not asked again soon, and neither is a cursor without a connection.
func TestRetryBackoff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want time.Duration
	}{
		{errors.New("connection reset"), 0},
		{fmt.Errorf("follow: %w", mongo.CommandError{Code: codeAPIStrict}), retryPermanent},
		{fmt.Errorf("follow: %w", errFewConnections), waitqueue.LongestRetry},
	} {
		if got := leastBackoff(test.err); got != test.want {
			t.Errorf("%v: at least %v, want %v", test.err, got, test.want)
		}
	}
}

// A cursor could not be opened, and then nobody waited any more. What is sent until the next watch opens it counts as sent by
// waiters that poll.
func TestUsableAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	s := &scriptedSource{open: func(n int) (time.Duration, error) {
		if n == 1 {
			return 0, errors.New("no primary")
		}
		return -1, nil
	}}
	w := newWatcher(s.source(time.Minute), "test.hints", discard, waitqueue.Settings{Linger: time.Millisecond})
	t.Cleanup(func() { w.close(context.WithoutCancel(t.Context())) })
	stop := w.Wake("job", me, func(driver.Wakeup) {})
	eventually(t, "the cursor cannot be opened", func() bool { return !w.usable() })
	stop()
	eventually(t, "nobody drives it", func() bool { return !w.Running() })
	if w.usable() {
		t.Error("a request would count as one that is woken")
	}
	w.Wake("job", me, func(driver.Wakeup) {})
	eventually(t, "the next watch opens it", w.usable)
}

// Watches that begin and end while the cursor is closed leave nothing behind, and wake nobody.
func TestWatchCloses(t *testing.T) {
	t.Parallel()
	hints := newHints(mongotest.Collection(t).Clone(majorityOptions()), newLockerID())
	for i := range 20 { // every second time before the cursor is open
		w := newWatcher(hints.source(), "test.hints", discard, waitqueue.Settings{})
		var watching sync.WaitGroup
		for i := range 8 {
			watching.Go(func() {
				for range 20 {
					w.Wake(fmt.Sprint(i), me, func(driver.Wakeup) {})()
				}
				w.Wake("never stopped", me, func(driver.Wakeup) {})
			})
		}
		if i%2 == 0 {
			eventually(t, "an open cursor", w.isOpen)
		}
		w.close(t.Context())
		if w.Running() {
			t.Error("the cursor is still there after close")
		}
		watching.Wait()
		w.close(t.Context())
		w.Wake("a", me, func(driver.Wakeup) { t.Error("woken after close") })()
	}
}

// Who has no position is not woken, and polls.
func TestOnlyWaitersInAQueueAreWoken(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	var got []driver.Wakeup
	defer l.Wake("job", "", func(up driver.Wakeup) { got = append(got, up) })()
	if want := []driver.Wakeup{{Kind: driver.WakingEnded}}; !slices.Equal(got, want) || !l.Info().WakesOnlyQueue || l.queue.Running() {
		t.Errorf("%v, want %v; the declaration: %v; a cursor: %v", got, want, l.Info().WakesOnlyQueue, l.queue.Running())
	}
}
