package driverutil_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Close waits for every call and goroutine that has begun, and none begins after it.
func TestCalls(t *testing.T) {
	c := driverutil.NewCalls()
	ran := make(chan struct{})
	if !c.Begin() || !c.Go(func() { <-ran }) || c.Running() != 2 {
		t.Fatalf("%d calls are under way, want 2", c.Running())
	}
	ended, first := c.Shut()
	if again, second := c.Shut(); !first || second || again != ended {
		t.Errorf("shut: %v, and again: %v", first, second)
	}
	if c.Begin() || c.Go(func() { t.Error("a goroutine was started") }) {
		t.Fatal("a call began after the end")
	}
	close(ran)
	for c.Running() > 1 { // until the goroutine has ended
		select {
		case <-ended:
			t.Fatal("the wait has ended, and a call has not")
		default:
			runtime.Gosched()
		}
	}
	c.End()
	<-ended

	if err := c.Run(t.Context(), time.Second, nil, func(context.Context) error { return nil }); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a call after the end: %v", err)
	}

	ended, _ = driverutil.NewCalls().Shut()
	<-ended
}

// A call ends with its limit and with Close, and does not begin with arguments that are invalid or in a context that has ended.
func TestCallsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := driverutil.NewCalls()
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := c.Run(t.Context(), time.Second, nil, wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its limit: %v", err)
		}
		never := func(context.Context) error { t.Error("the call has begun"); return nil }
		invalid := driver.Invalid("Name", "", "a name")
		if err := c.Run(t.Context(), time.Second, invalid, never); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("invalid: %v", err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(over, time.Second, nil, never); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
		go func() {
			synctest.Wait()
			c.Interrupt()
		}()
		if err := c.Run(t.Context(), time.Hour, nil, wait); !errors.Is(err, context.Canceled) || c.Running() != 0 {
			t.Errorf("interrupted: %v, and %d calls", err, c.Running())
		}
	})
}
