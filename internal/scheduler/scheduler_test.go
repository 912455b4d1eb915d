package scheduler

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/worker"
)

// Calls that return at the very moment when the patience with them is over, as after a
// pause of the whole process: each place is given back once, to one.
func TestSchedulerCallReturnsAsPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience, each = time.Second, 3
		start := time.Now()
		var workers worker.Group
		var done atomic.Int64
		const schedulers = 50
		for range schedulers {
			a := New(func() time.Duration { return time.Since(start) }, 1, patience, &workers)
			for range each {
				e := &Entry{Do: func() { time.Sleep(patience); done.Add(1) }}
				a.Set(e, 0, false)
			}
		}
		time.Sleep((each + 1) * patience)
		synctest.Wait()
		if got := done.Load(); got != schedulers*each {
			t.Errorf("%d of %d calls were made", got, schedulers*each)
		}
	})
}

// Calls that come back as fast as they are made, more than there are places for, keep
// no retry waiting for ever; nor do retries that hang take more than their part.
func TestSchedulerRetriesHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return time.Since(start) }
		var workers worker.Group
		a := New(now, 4, time.Minute, &workers)
		var over atomic.Bool
		var fresh, hung atomic.Int64
		for range 50 {
			e := &Entry{}
			e.Do = func() {
				time.Sleep(10 * time.Millisecond)
				if fresh.Add(1); !over.Load() {
					a.Set(e, now(), false)
				}
			}
			a.Set(e, 0, false)
		}
		retry := make(chan struct{})
		a.Set(&Entry{Do: func() { close(retry) }}, now(), true)
		time.Sleep(time.Second)
		select {
		case <-retry:
		default:
			t.Error("a retry was kept waiting for ever")
		}
		for range 10 {
			a.Set(&Entry{Do: func() { time.Sleep(time.Hour); hung.Add(1) }}, now(), true)
		}
		before := fresh.Load()
		time.Sleep(50 * time.Second)
		if n := fresh.Load() - before; n < 3*50*100*9/10 { // three places of four
			t.Errorf("%d calls in 50 s beside retries that hang", n)
		}
		over.Store(true)
		time.Sleep(2 * time.Hour)
		if hung.Load() != 10 {
			t.Errorf("%d of 10 retries were made", hung.Load())
		}
	})
}

// Retries take at most half of the places, also when nothing else is there: what comes for
// the first time finds one free.
func TestSchedulerRetriesLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return time.Since(start) }
		var workers worker.Group
		a := New(now, 4, time.Minute, &workers)
		var hung, fresh atomic.Int64
		for range 10 {
			a.Set(&Entry{Do: func() { hung.Add(1); time.Sleep(30 * time.Second) }}, 0, true)
		}
		synctest.Wait()
		if n := hung.Load(); n != 2 {
			t.Errorf("%d retries have a place of 4, want 2", n)
		}
		for range 2 {
			a.Set(&Entry{Do: func() { fresh.Add(1) }}, now(), false)
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
