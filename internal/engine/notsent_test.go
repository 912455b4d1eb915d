package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// notSent is the error of a request for a lock that never left the process.
func notSent(name string) error {
	return &driver.OpError{Op: "acquire", Backend: "memory", Name: name, Err: errors.New("connection refused"), NotSent: true}
}

// A request that was not sent leaves nothing to clean up, so Shutdown returns at once although no backend answers.
func TestShutdownAfterARequestThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dead := memory.NewStore(), driver.Denied(errors.New("nothing answers")) // a release must not even be tried
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpAcquire {
				return locktest.Fault{Refuse: notSent("job")}
			}
			return locktest.Fault{Refuse: dead}
		})
		c := locktest.NewClient(t, f)
		err := c.TryDo(t.Context(), "job", func(context.Context) error { return nil })
		if !driver.NotSent(err) {
			t.Errorf("TryDo: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) || f.Count(locktest.OpAcquire) < 3 {
			t.Errorf("Lock, after %d requests: %v", f.Count(locktest.OpAcquire), err)
		}
		start := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Shutdown took %v: %v", time.Since(start), err)
		}
		if n := f.Count(locktest.OpRelease); n > 0 {
			t.Errorf("%d releases of a request that was not sent", n)
		}
	})
}

// Requests that were not sent are retried like others that failed.
func TestRequestsThatWereNotSentAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) (none locktest.Fault) {
			if op == locktest.OpAcquire && n <= 3 {
				return locktest.Fault{Refuse: notSent("job")}
			}
			return none
		})
		start := time.Now()
		locktest.Release(t, locktest.MustLock(t, c, "job"))
		if took := time.Since(start); took < 300*time.Millisecond {
			t.Errorf("granted after %v, without the backoff", took)
		}
	})
}

// A request that was not sent says nothing of the one before it, which may have been applied: that is cleaned up.
func TestRequestInDoubtBeforeOneThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) (none locktest.Fault) {
			switch {
			case op == locktest.OpAcquire && n == 1:
				return locktest.Fault{Lose: locktest.ErrInjected}
			case op == locktest.OpAcquire:
				return locktest.Fault{Refuse: notSent("job")}
			}
			return none
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		time.Sleep(time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("the lock that the first request took stays held")
		}
	})
}

// The context of a caller may end because another call was not sent. A driver that returns that cause has not said so of this one.
func TestAnotherCallThatWasNotSent(t *testing.T) {
	for name, wrap := range map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"within this call's error": func(err error) error {
			return &driver.OpError{Op: "acquire", Backend: "memory", Name: "job", Err: fmt.Errorf("%w (%w)", context.Canceled, err)}
		},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			ctx, cancel := context.WithCancelCause(t.Context())
			locker := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				a := next(ctx, call)
				if call.Method == driver.MethodTryAcquire {
					cancel(notSent("another"))
					return driver.Answer{Err: wrap(context.Cause(ctx))}
				}
				return a
			})
			c := locktest.NewClient(t, locker)
			if _, err := c.TryLock(ctx, "job"); err == nil {
				t.Error("granted")
			}
			time.Sleep(time.Second)
			if locktest.IsHeld(t, store, "job") {
				t.Error("the lock stays held: the request counts as not sent")
			}
		})
	}
}

// A release that was not sent is retried, and frees the lock. If none gets through, its error does not say that the outcome is
// unknown.
func TestReleaseThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsent := &driver.OpError{Op: "release", Backend: "memory", Name: "job", Err: errors.New("connection refused"), NotSent: true}
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.First(locktest.OpRelease, locktest.Fault{Refuse: unsent}))
		locktest.Release(t, locktest.MustLock(t, c, "job"))
		if locktest.IsHeld(t, store, "job") {
			t.Error("the lock is held after a release that was retried")
		}
		down := locktest.FaultyClient(t, store.Locker(), locktest.Each(locktest.OpRelease, locktest.Fault{Refuse: unsent}))
		err := locktest.MustLock(t, down, "job").Release(t.Context())
		want := `holdfast: release "job": the lock may stay held until its lease expires: release "job" on memory: connection refused`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}
