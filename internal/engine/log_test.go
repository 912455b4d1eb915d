package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// logOf returns a log of a level, and the option that makes a Client write to it.
func logOf(level slog.Level) (*locktest.Log, holdfast.ClientOption) {
	out := &locktest.Log{}
	return out, holdfast.WithLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})))
}

func wantLogged(t *testing.T, log string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(log, part) {
			t.Errorf("%q is not logged, but:\n%s", part, log)
		}
	}
}

func TestLogMessagesStandAlone(t *testing.T) {
	refuse := locktest.Fault{Refuse: locktest.ErrInjected}
	for what, test := range map[string]struct {
		faults locktest.Faults
		work   time.Duration
		err    error // of Release
		want   []string
	}{
		"all renewals fail": {locktest.Each(locktest.OpRenew, refuse), time.Hour, nil, []string{
			`level=DEBUG msg="holdfast: lock acquired" lock=job owner=`,
			`level=WARN msg="holdfast: renewal failed, retrying" lock=job`, " op=renew error=",
			`level=WARN msg="holdfast: lease lost" lock=job`,
			`level=ERROR msg="holdfast: work still running after its lease ended" lock=job`}},
		"an acquire fails": {locktest.First(locktest.OpAcquire, refuse), 0, nil, []string{
			`level=WARN msg="holdfast: acquire failed; a waiting caller retries" lock=job op=acquire error=`}},
		"a release fails": {locktest.First(locktest.OpRelease, refuse), 0, nil, []string{
			`level=WARN msg="holdfast: release failed, retrying until the lease expires" lock=job`}},
		"a release is not retried, because its outcome is known": {locktest.Each(locktest.OpRelease,
			locktest.Fault{Refuse: driver.Errorf("the store is %w", holdfast.ErrClosed)}), 0, holdfast.ErrClosed,
			[]string{`level=WARN msg="holdfast: release failed" lock=job`}},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			out, logger := logOf(slog.LevelDebug)
			h := locktest.MustLock(t, locktest.FaultyClient(t, memory.NewStore().Locker(), test.faults, logger), "job")
			time.Sleep(test.work)
			if err := h.Release(t.Context()); !errors.Is(err, test.err) {
				t.Errorf("Release: %v", err)
			}
			synctest.Wait()
			log := out.Take()
			wantLogged(t, log, test.want...)
			if strings.Contains(log, `msg="holdfast: error"`) {
				t.Errorf("a failure has no words of its own:\n%s", log)
			}
		})
	}
}

// A loss is a warning, so acquiring the lock again is logged at the default level too.
func TestRecoveryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		var down atomic.Bool
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), locktest.While(&down, locktest.Fault{Refuse: locktest.ErrInjected}), logger)
		h := locktest.MustLock(t, c, "job")
		if other := locktest.MustLock(t, c, "other"); other.Release(t.Context()) != nil {
			t.Error("not released")
		}
		if log := out.Take(); log != "" {
			t.Errorf("ordinary successes are logged at info:\n%s", log)
		}
		down.Store(true)
		time.Sleep(time.Minute)
		down.Store(false)
		_ = h.Release(t.Context())
		synctest.Wait()
		wantLogged(t, out.Take(), `level=WARN msg="holdfast: lease lost" lock=job`)
		h = locktest.MustLock(t, c, "job")
		synctest.Wait()
		wantLogged(t, out.Take(), `level=INFO msg="holdfast: lock acquired again after a loss" lock=job owner=`, " token=")
		_ = h.Release(t.Context())
		_ = locktest.MustLock(t, c, "job").Release(t.Context())
		synctest.Wait()
		if log := out.Take(); log != "" {
			t.Errorf("the second acquisition after one loss is logged too:\n%s", log)
		}
	})
}

func TestElectionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		c := locktest.NewClient(t, memory.New(), logger)
		r, calls := locktest.NewRunner(t, c), 0
		err := r.Run(t.Context(), func(ctx context.Context) error {
			if calls++; calls > 1 {
				return nil
			}
			go func() {
				if err := r.StepDown(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		log := out.Take()
		wantLogged(t, log, `level=INFO msg="holdfast: elected leader" lock=job`, `level=INFO msg="holdfast: stepped down as leader" lock=job`)
		if n := strings.Count(log, "elected leader"); n != 2 {
			t.Errorf("%d elections are logged, not 2:\n%s", n, log)
		}
	})
}

// Goroutines that wait for each other's lock are ordinary, and not logged.
func TestOrdinaryContentionIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		var seen locktest.Events
		c := locktest.NewClient(t, memory.New(), logger, holdfast.WithObserver(seen.Observe))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 5 {
					if err := c.Do(t.Context(), "job", func(context.Context) error { time.Sleep(29 * time.Second); return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if log, n := out.Take(), seen.Count(holdfast.EventHolderSeen); log != "" || n != 0 {
			t.Errorf("%d times a holder was reported, and logged:\n%s", n, log)
		}
	})
}

// A long wait for this process's own hold is reported also if another held the lock when the wait
// began: once for each hold, however many callers wait for it.
func TestWaitingForALaterOwnHoldIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		out, logger := logOf(slog.LevelInfo)
		c := locktest.NewClient(t, store.Locker(), logger)
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		holds := make(chan *holdfast.Hold)
		for range 3 {
			go func() {
				h, err := c.Lock(t.Context(), "job")
				if err != nil {
					t.Error(err)
				}
				holds <- h
			}()
		}
		time.Sleep(45 * time.Second)
		out.Take() // the wait for the other
		locktest.Release(t, other)
		for left := 2; left >= 0; left-- {
			h := <-holds
			time.Sleep(29900 * time.Millisecond)
			if log := out.Take(); log != "" {
				t.Errorf("reported too soon:\n%s", log)
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if log := out.Take(); strings.Count(log, "that this process itself holds") != min(left, 1) {
				t.Errorf("%d callers wait for one hold; logged:\n%s", left, log)
			}
			time.Sleep(5 * time.Minute)
			if log := out.Take(); log != "" {
				t.Errorf("reported again:\n%s", log)
			}
			locktest.Release(t, h)
		}
	})
}

// Waiting for this process's own slots is reported when none of them becomes free.
func TestWaitingForOwnSlotsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		c := locktest.NewClient(t, memory.New(), logger, holdfast.WithSlots(2))
		first := locktest.MustLock(t, c, "job")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_ = c.Do(t.Context(), "job", func(context.Context) error { time.Sleep(20 * time.Second); return nil })
			})
		}
		wg.Wait()
		synctest.Wait()
		if log := out.Take(); log != "" {
			t.Errorf("slots become free, and yet:\n%s", log)
		}
		second := locktest.MustLock(t, c, "job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		if err == nil {
			t.Error("a third slot of two")
		}
		synctest.Wait()
		if log := out.Take(); strings.Count(log, "that this process itself holds") != 1 {
			t.Errorf("no slot has become free for a minute; logged:\n%s", log)
		}
		_, _ = first.Release(t.Context()), second.Release(t.Context())
	})
}

// A long wait for a lock that this process itself holds is reported: the caller may be the one
// that should release it.
func TestWaitingForAnOwnHoldIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		var seen []string
		c := locktest.NewClient(t, memory.New(), logger, holdfast.WithObserver(func(e holdfast.Event) {
			if e.Type == holdfast.EventHolderSeen {
				seen = append(seen, e.String())
			}
		}))
		h := locktest.MustLock(t, c, "job", holdfast.WithOwner("me"))
		go func() {
			time.Sleep(29 * time.Second)
			_ = h.Release(t.Context())
		}()
		h = locktest.MustLock(t, c, "job", holdfast.WithOwner("me"))
		synctest.Wait()
		if log := out.Take(); log != "" || len(seen) > 0 {
			t.Errorf("a short wait is reported: %q\n%s", seen, log)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		synctest.Wait()
		log := out.Take()
		wantLogged(t, log, `level=INFO msg="holdfast: waiting for a lock that this process itself holds" lock=job owner=me token=`)
		if strings.Count(log, "\n") != 1 || len(seen) != 1 || !strings.HasPrefix(seen[0], `holder seen "job": "me" in this process, token `) {
			t.Errorf("reported: %q\n%s", seen, log)
		}
		if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), `this process itself holds it: lock "job" is held by "me"`) {
			t.Errorf("the wait ended with %v", err)
		}
		_ = h.Release(t.Context())
	})
}
