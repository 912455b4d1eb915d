package scheduler

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/worker"
)

// Calls return at the moment when their patience ends, as after a pause of the whole process.
// Each frees its part of the limit once.
func TestCallReturnsAsPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience, each = time.Second, 3
		start := time.Now()
		var workers worker.Group
		var done atomic.Int64
		const schedulers = 50
		for range schedulers {
			s := New(func() time.Duration { return time.Since(start) }, 1, patience, &workers)
			for range each {
				e := &Entry{Do: func() { time.Sleep(patience); done.Add(1) }}
				s.Set(e, 0, false)
			}
		}
		time.Sleep((each + 1) * patience)
		synctest.Wait()
		if got := done.Load(); got != schedulers*each {
			t.Errorf("%d of %d calls were made", got, schedulers*each)
		}
	})
}

// More first attempts than the limit allows, each planned again as soon as it is made, do not
// keep a retry waiting forever. Retries that hang use no more than their part of the limit.
func TestRetriesHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newScheduler(4)
		var over atomic.Bool
		var fresh, hung atomic.Int64
		for range 50 {
			e := &Entry{}
			e.Do = func() {
				time.Sleep(10 * time.Millisecond)
				if fresh.Add(1); !over.Load() {
					s.Set(e, now(), false)
				}
			}
			s.Set(e, 0, false)
		}
		retry := make(chan struct{})
		s.Set(&Entry{Do: func() { close(retry) }}, now(), true)
		time.Sleep(time.Second)
		select {
		case <-retry:
		default:
			t.Error("a retry waited forever")
		}
		for range 10 {
			s.Set(&Entry{Do: func() { time.Sleep(time.Hour); hung.Add(1) }}, now(), true)
		}
		before := fresh.Load()
		time.Sleep(50 * time.Second)
		if n := fresh.Load() - before; n < 3*50*100*9/10 { // three of four calls at once
			t.Errorf("%d calls in 50 s beside retries that hang", n)
		}
		over.Store(true)
		time.Sleep(2 * time.Hour)
		if hung.Load() != 10 {
			t.Errorf("%d of 10 retries were made", hung.Load())
		}
	})
}

// Retries use at most half of the limit, also when nothing else is due: a first attempt can
// begin at once.
func TestRetriesLeaveHalfOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newScheduler(4)
		var hung, fresh atomic.Int64
		for range 10 {
			s.Set(&Entry{Do: func() { hung.Add(1); time.Sleep(30 * time.Second) }}, 0, true)
		}
		synctest.Wait()
		if n := hung.Load(); n != 2 {
			t.Errorf("%d retries run at once under a limit of 4, want 2", n)
		}
		for range 2 {
			s.Set(&Entry{Do: func() { fresh.Add(1) }}, now(), false)
		}
		synctest.Wait()
		if n := fresh.Load(); n != 2 {
			t.Errorf("%d of 2 calls were made beside retries that hang", n)
		}
		time.Sleep(5 * time.Minute)
		if n := hung.Load(); n != 10 {
			t.Errorf("%d of 10 retries were made", n)
		}
	})
}

// Hasten plans a call that has no plan or a later one, and keeps an earlier plan.
func TestHasten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newScheduler(1)
		for _, c := range []struct{ planned, hasten, want time.Duration }{
			{0, 2 * time.Second, 2 * time.Second}, // no plan
			{3 * time.Second, 2 * time.Second, 2 * time.Second},
			{time.Second, 2 * time.Second, time.Second},
		} {
			begin, called := now(), make(chan time.Duration, 2)
			e := &Entry{Do: func() { called <- now() }}
			if c.planned > 0 {
				s.Set(e, begin+c.planned, false)
			}
			s.Hasten(e, begin+c.hasten)
			time.Sleep(5 * time.Second)
			if n := len(called); n != 1 {
				t.Fatalf("planned for %v, hastened to %v: %d calls, want one", c.planned, c.hasten, n)
			}
			if got := <-called - begin; got != c.want {
				t.Errorf("planned for %v, hastened to %v: called after %v, want %v", c.planned, c.hasten, got, c.want)
			}
		}
	})
}

// newScheduler returns a Scheduler that makes so many calls at a time, and its clock.
func newScheduler(limit int) (*Scheduler, func() time.Duration) {
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	return New(now, limit, time.Minute, new(worker.Group)), now
}
