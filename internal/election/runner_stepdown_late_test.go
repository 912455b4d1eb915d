package election_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/election"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A step-down after the end of the leadership is none: it is not reported, and no cool-down follows.
func TestStepDown_TooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		op    string
		fault locktest.Fault
		after time.Duration
		gives time.Duration // how long the caller waits
	}{
		"lost":                         {locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}, time.Minute, time.Hour},
		"lost, with a limit":           {locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}, time.Minute, time.Second},
		"being released":               {locktest.OpRelease, locktest.Fault{Delay: 2 * time.Second}, 91 * time.Second, time.Hour},
		"being released, with a limit": {locktest.OpRelease, locktest.Fault{Delay: 2 * time.Second}, 91 * time.Second, time.Millisecond},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			var ill atomic.Bool
			ill.Store(true)
			seen := locktest.Events{}
			c := locktest.FaultyClient(t, memory.New(), locktest.EachWhile(tc.op, &ill, tc.fault), holdfast.WithObserver(seen.Observe))
			r := locktest.NewRunner(t, c, holdfast.WithCoolDown(time.Hour))
			begin := time.Now()
			first := locktest.Campaign(t.Context(), r, func(context.Context) error {
				time.Sleep(90 * time.Second)
				return nil
			})
			time.Sleep(tc.after)
			ctx, cancel := context.WithTimeout(t.Context(), tc.gives)
			defer cancel()
			if err := r.StepDown(ctx); (err != nil) != (tc.gives < time.Minute) {
				t.Errorf("StepDown: %v", err)
			}
			ill.Store(false)
			if tc.op == locktest.OpRelease { // else Run campaigns again
				if err := <-first; err != nil {
					t.Errorf("Run: %v", err)
				}
				first = locktest.Campaign(t.Context(), r, locktest.EmptyTask)
			}
			if err := <-first; err != nil || time.Since(begin) > 10*time.Minute {
				t.Errorf("leads again after %v (%v): a cool-down, although the runner did not step down", time.Since(begin), err)
			}
			synctest.Wait()
			if n := seen.Count(holdfast.EventSteppedDown); n != 0 {
				t.Errorf("%d step-downs reported", n)
			}
		})
	}
}

// A step-down is reported before the release, however soon the task returns. An observer that blocks delays neither.
func TestStepDown_IsReportedBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, unblock := locktest.Events{}, make(chan struct{})
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(func(e holdfast.Event) { <-unblock; seen.Observe(e) }))
		core := bridge.Client(c)
		r, err := election.New(core, "job", election.Config{Lock: core.Defaults()})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context(), locktest.LeadUntilCanceled) }()
		synctest.Wait()
		r.StepDownBy(holdfast.ErrSteppedDown, func(h *engine.Hold, released <-chan struct{}) {
			h.Cancel(holdfast.ErrSteppedDown)
			<-released
		})
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		close(unblock)
		synctest.Wait()
		want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventSteppedDown, holdfast.EventReleased}
		if got := seen.Types(); !slices.Equal(got, want) {
			t.Errorf("reported %v, want %v", got, want)
		}
	})
}

// StepDown and Close that are done are no error, although ctx has ended, too.
func TestStepDown_DoneWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := locktest.EndsLate{Context: locktest.Ended()}
		for range 100 {
			r := locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
			mustRun(t, r, locktest.EmptyTask, true)
			if err := r.StepDown(late); err != nil {
				t.Fatalf("StepDown: %v", err)
			}
			r = locktest.NewRunner(t, locktest.NewClient(t, memory.New()))
			done := locktest.Campaign(t.Context(), r, slowly(time.Second/2))
			synctest.Wait()
			if err := r.Close(late); err != nil {
				t.Fatalf("Close: %v", err)
			}
			if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
				t.Fatalf("Run: %v", err)
			}
		}
	})
}

// The error of a call whose ctx has ended blames the task only while that runs.
func TestStepDown_SaysWhatHasNotEnded(t *testing.T) {
	for name, end := range map[string]func(*holdfast.LeaderAwareRunner, context.Context) error{
		"StepDown": (*holdfast.LeaderAwareRunner).StepDown, "Close": (*holdfast.LeaderAwareRunner).Close,
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			slow := locktest.Each(locktest.OpRelease, locktest.Fault{Delay: 2 * time.Second})
			r := locktest.NewRunner(t, locktest.FaultyClient(t, memory.New(), slow))
			done := locktest.Campaign(t.Context(), r, locktest.EmptyTask)
			synctest.Wait() // the task has returned
			err := end(r, locktest.Ended())
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "task has not returned") {
				t.Errorf("while the lock is released: %v", err)
			}
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}
