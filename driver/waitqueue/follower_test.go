package waitqueue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// script is a stream that a test breaks. It counts those that are open.
type script struct {
	open, opened atomic.Int64
	fails        atomic.Bool
	broken       chan error
}

func (s *script) Next(ctx context.Context) error {
	select {
	case err := <-s.broken:
		return err
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *script) Close() { s.open.Add(-1) }

func (s *script) source(group *sync.WaitGroup) Source {
	return Source{
		Open: func(ctx context.Context) (Events, error) {
			s.opened.Add(1)
			time.Sleep(10 * time.Millisecond)
			if s.fails.Load() {
				return nil, errors.New("no server")
			}
			s.open.Add(1)
			return s, nil
		},
		Go: func(run func()) bool { group.Go(run); return true },
	}
}

// A Follower wakes its waiters, notifies them of failures, and ends its goroutine when nobody waits.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, group := &script{broken: make(chan error)}, &sync.WaitGroup{}
		f := NewFollower(t.Context(), s.source(group), Settings{})
		var got []driver.Wakeup
		stop := f.Wake("job", "w", func(up driver.Wakeup) { got = append(got, up) })
		expect := func(what string, want ...driver.WakeupKind) {
			t.Helper()
			synctest.Wait()
			for i, up := range got {
				if len(got) != len(want) || up.Kind != want[i] {
					t.Fatalf("%s: %v, want %v", what, got, want)
				}
			}
			got = nil
		}
		time.Sleep(20 * time.Millisecond)
		expect("opened", driver.WakingBegan)
		f.Event("job", "w", 0)
		f.Event("job", "another", 0)
		f.Event("job", "", 0)
		expect("an event", driver.MayBeFree)
		f.Gap()
		expect("a gap", driver.WakingBegan)
		s.broken <- errors.New("reset")
		time.Sleep(time.Second)
		expect("reopened", driver.WakingBegan)
		s.fails.Store(true)
		s.broken <- errors.New("reset")
		time.Sleep(time.Second)
		expect("failed", driver.WakingEnded)
		if f.Usable() || !f.OpenSince().IsZero() {
			t.Error("usable")
		}
		s.fails.Store(false)
		time.Sleep(time.Minute)
		expect("works again", driver.WakingBegan)
		stop()
		stop()
		if f.Watched("job") {
			t.Error("watched")
		}
		time.Sleep(time.Minute)
		if f.Running() || s.open.Load() != 0 {
			t.Errorf("the goroutine runs: %v, %d streams are open", f.Running(), s.open.Load())
		}
		group.Wait()
	})
}

// Shut ends the goroutine in whatever it is, and wakes nobody afterwards.
func TestShut(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, time.Second} {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, group := &script{broken: make(chan error)}, &sync.WaitGroup{}
				s.fails.Store(fails)
				f := NewFollower(t.Context(), s.source(group), Settings{})
				var shut atomic.Bool
				wake := func(driver.Wakeup) {
					if shut.Load() {
						t.Error("woken after the end")
					}
				}
				stop := f.Wake("job", "w", wake)
				time.Sleep(after)
				f.Shut()
				shut.Store(true)
				group.Wait()
				f.Wake("job", "w", wake)()
				f.Event("job", "w", 0)
				stop()
				if s.open.Load() != 0 || f.Running() {
					t.Errorf("%d streams are open", s.open.Load())
				}
			})
		}
	}
}

// Wake-ups from several goroutines reach a waiter in their order: the last one says what is so. A waiter may stop
// its watch meanwhile.
func TestCallsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, group := &script{broken: make(chan error)}, &sync.WaitGroup{}
		f := NewFollower(t.Context(), s.source(group), Settings{})
		var last atomic.Int64
		var busy atomic.Bool
		begun := make(chan struct{})
		stop := f.Wake("job", "w", func(up driver.Wakeup) {
			if busy.Swap(true) {
				t.Error("two calls at a time")
			}
			if up.Kind == driver.MayBeFree {
				close(begun)
				time.Sleep(time.Minute) // a waiter should not
			}
			last.Store(int64(up.Kind))
			busy.Store(false)
		})
		time.Sleep(time.Second)
		go f.Event("job", "w", 0)
		<-begun
		s.fails.Store(true)
		s.broken <- errors.New("reset") // reported while the first call is under way
		time.Sleep(2 * time.Minute)
		if last.Load() != int64(driver.WakingEnded) {
			t.Errorf("the last call was %d", last.Load())
		}
		stop()
		f.Shut()
		group.Wait()
	})
}
