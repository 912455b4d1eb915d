package dispatch

import (
	"slices"
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
			s := scheduleWith(func() time.Duration { return time.Since(start) }, 1, patience, &workers)
			for range each {
				e := &entry{do: func() { time.Sleep(patience); done.Add(1) }}
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
		s, now := newSchedule(4)
		var hung atomic.Int64
		fresh, end := retryInAFlow(t, s, now, 50)
		for range 10 {
			s.Set(&entry{do: func() { time.Sleep(time.Hour); hung.Add(1) }}, now(), true)
		}
		before := fresh.Load()
		time.Sleep(50 * time.Second)
		if n := fresh.Load() - before; n < 3*50*100*9/10 { // three of four calls at once
			t.Errorf("%d calls in 50 s beside retries that hang", n)
		}
		end()
		time.Sleep(2 * time.Hour)
		if hung.Load() != 10 {
			t.Errorf("%d of 10 retries were made", hung.Load())
		}
	})
}

// retryInAFlow has entries make first attempts of 10 ms, each as soon as its last one is over, until end is called, and counts them. A
// retry has its turn among them.
func retryInAFlow(t *testing.T, s *Schedule[*entry], now func() time.Duration, entries int) (calls *atomic.Int64, end func()) {
	t.Helper()
	var over atomic.Bool
	calls = &atomic.Int64{}
	for range entries {
		e := &entry{}
		e.do = func() {
			time.Sleep(10 * time.Millisecond)
			if calls.Add(1); !over.Load() {
				s.Set(e, now(), false)
			}
		}
		s.Set(e, 0, false)
	}
	retry := make(chan struct{})
	s.Set(&entry{do: func() { close(retry) }}, now(), true)
	time.Sleep(time.Second)
	select {
	case <-retry:
	default:
		t.Error("a retry waited forever")
	}
	return calls, func() { over.Store(true) }
}

// Under a limit of 1, too, a steady flow of first attempts does not keep a retry waiting, and retries that were due before them
// use every other call at most.
func TestRetriesHaveTheirTurnUnderALimitOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newSchedule(1)
		_, end := retryInAFlow(t, s, now, 5)
		end()
		time.Sleep(time.Second)
		s.Set(&entry{do: func() { time.Sleep(time.Second) }}, now(), false)
		called := make(chan string, 6)
		for _, kind := range []string{"first", "retry", "retry", "retry", "first", "first"} {
			s.Set(&entry{do: func() { called <- kind }}, now(), kind == "retry")
		}
		time.Sleep(2 * time.Second)
		for _, want := range []string{"first", "retry", "first", "retry", "first", "retry"} {
			if got := <-called; got != want {
				t.Errorf("called a %s, want a %s", got, want)
			}
		}
	})
}

// Retries use at most half of the limit, also when nothing else is due: a first attempt can
// begin at once.
func TestRetriesLeaveHalfOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newSchedule(4)
		var hung, fresh atomic.Int64
		for range 10 {
			s.Set(&entry{do: func() { hung.Add(1); time.Sleep(30 * time.Second) }}, 0, true)
		}
		synctest.Wait()
		if n := hung.Load(); n != 2 {
			t.Errorf("%d retries run at once under a limit of 4, want 2", n)
		}
		for range 2 {
			s.Set(&entry{do: func() { fresh.Add(1) }}, now(), false)
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

// Set replaces an earlier plan, and Cancel removes it.
func TestSetAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newSchedule(1)
		for _, c := range []struct{ planned, again, want time.Duration }{
			{0, 2 * time.Second, 2 * time.Second}, // no plan
			{3 * time.Second, 2 * time.Second, 2 * time.Second},
			{time.Second, 2 * time.Second, 2 * time.Second},
		} {
			begin, called := now(), make(chan time.Duration, 2)
			e := &entry{do: func() { called <- now() }}
			if c.planned > 0 {
				s.Set(e, begin+c.planned, false)
			}
			s.Set(e, begin+c.again, false)
			time.Sleep(5 * time.Second)
			if n := len(called); n != 1 {
				t.Fatalf("planned for %v, then for %v: %d calls, want one", c.planned, c.again, n)
			}
			if got := <-called - begin; got != c.want {
				t.Errorf("planned for %v, then for %v: called after %v", c.planned, c.again, got)
			}
			s.Set(e, now()+time.Second, false)
			s.Cancel(e)
			time.Sleep(5 * time.Second)
			if n := len(called); n != 0 {
				t.Errorf("%d calls of a canceled entry", n)
			}
		}
	})
}

// Entries are called in the order of their times, also if they were planned in another; and a canceled one that is due,
// behind a call under way, is not called.
func TestEntriesAreCalledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSchedule(1)
		called := make(chan int, 10)
		at := []int{5, 1, 4, 2, 3}
		var all []*entry
		for _, n := range at {
			e := &entry{do: func() { called <- n; time.Sleep(10 * time.Second) }}
			all = append(all, e)
			s.Set(e, time.Duration(n)*time.Second, false)
		}
		time.Sleep(6 * time.Second) // all are due, and one is called
		s.Cancel(all[2])
		time.Sleep(time.Minute)
		var order []int
		for len(called) > 0 {
			order = append(order, <-called)
		}
		if want := []int{1, 2, 3, 5}; !slices.Equal(order, want) {
			t.Errorf("called in the order %v, want %v", order, want)
		}
		if !s.Idle() {
			t.Error("not idle although nothing is due")
		}
	})
}

// An entry that needs its call no more, when it is due, can be canceled and planned again.
func TestStaleEntryOfASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rules := Single(new(worker.Group), 1, func(e *entry) Call { return Call{Do: e.do, Patience: time.Minute} })
		var isStale *entry
		rules.Stale = func(e *entry) bool { return e == isStale }
		s := NewSchedule(func() time.Duration { return time.Since(start) }, rules, nil)
		called := make(chan string, 10)
		first := &entry{do: func() { called <- "first"; time.Sleep(time.Second) }}
		second := &entry{do: func() { called <- "second" }}
		third := &entry{do: func() { called <- "third" }}
		isStale = second
		for _, e := range []*entry{first, second, third} {
			s.Set(e, 0, false)
		}
		time.Sleep(2 * time.Second)
		s.Cancel(second)
		isStale = nil
		s.Set(second, 3*time.Second, false)
		time.Sleep(5 * time.Second)
		for _, want := range []string{"first", "third", "second"} {
			if got := <-called; got != want {
				t.Errorf("called %s, want %s", got, want)
			}
		}
	})
}

// Timers do not count a suspend of the system. After one, an entry does not wait for the rest of a timer that was set before.
func TestScheduleAfterASuspend(t *testing.T) {
	for _, suspend := range []time.Duration{time.Hour - time.Second, 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var suspended atomic.Int64
			now := func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }
			s := scheduleWith(now, 1, time.Minute, new(worker.Group))
			s.Set(&entry{do: func() {}}, time.Hour, false)
			s.Set(&entry{do: func() {}}, 5*time.Hour, false)
			suspended.Store(int64(suspend))
			called := make(chan time.Duration, 2)
			begin := now()
			in := []time.Duration{time.Second, 2 * time.Second}
			for _, d := range in {
				s.Set(&entry{do: func() { called <- now() - begin }}, begin+d, false)
			}
			time.Sleep(10 * time.Hour)
			for _, want := range in {
				if got := <-called; got != want {
					t.Errorf("after a suspend of %v, called after %v, want %v", suspend, got, want)
				}
			}
		})
	}
}

type entry struct {
	Plan
	do func()
}

// newSchedule returns a Schedule that makes so many calls at a time, and its clock.
func newSchedule(limit int) (*Schedule[*entry], func() time.Duration) {
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	return scheduleWith(now, limit, time.Minute, new(worker.Group)), now
}

func scheduleWith(now func() time.Duration, limit int, patience time.Duration, workers *worker.Group) *Schedule[*entry] {
	return NewSchedule(now, Single(workers, limit, func(e *entry) Call { return Call{Do: e.do, Patience: patience} }), nil)
}
