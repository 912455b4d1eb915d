package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Do's documentation: "if the lock was lost before fn returned, the result matches
// ErrLost too, even if fn returned nil". The caller's cancellation comes first here.
func TestCorner_LossAfterCancellationIsTold(t *testing.T) {
	work := func(ctx context.Context) error { time.Sleep(time.Minute); return nil }
	t.Run("Do, caller canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := newClient(t, newFaulty(t, store.Locker(), refuse(opRenew)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			go func() { // the other process has it from 30 s on
				time.Sleep(2 * time.Second)
				_ = newClient(t, store.Locker()).Do(context.Background(), "job", func(context.Context) error { return nil })
			}()
			if err := c.Do(ctx, "job", work); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("lost after 25 s, fn returned after 60 s: Do returned %v", err)
			}
		})
	})
	t.Run("Do, Shutdown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), refuse(opRenew)))
			time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
			if err := c.Do(t.Context(), "job", work); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do returned %v", err)
			}
		})
	})
	t.Run("RunTaskOnLeader, StepDown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), refuse(opRenew)))
			r := newRunner(t, c)
			time.AfterFunc(time.Second, func() { _ = r.StepDown(context.Background()) })
			ran, err := r.RunTaskOnLeader(t.Context(), work)
			if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrSteppedDown) {
				t.Errorf("the lock was not kept until task had returned: %v, %v", ran, err)
			}
		})
	})
}

// Nothing panics on bad input.
func TestCorner_NilArguments(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, c *holdfast.Client) error{
		"Do without a function": func(t *testing.T, c *holdfast.Client) error { return c.Do(t.Context(), "job", nil) },
		"TryLock, nil option": func(t *testing.T, c *holdfast.Client) error {
			_, err := c.TryLock(t.Context(), "job", nil)
			return err
		},
		"New, nil option": func(*testing.T, *holdfast.Client) error {
			_, err := holdfast.New(memory.New(), nil)
			return err
		},
		"New, nil observer": func(*testing.T, *holdfast.Client) error {
			_, err := holdfast.New(memory.New(), holdfast.WithObserver(nil))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, memory.New())
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			if err := call(t, c); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("err = %v, want ErrInvalid", err)
			}
		})
	}
}

// WithRequestTimeout "bounds each single backend call": a clean-up's calls have TTL/10.
func TestCorner_CleanUpHasTheTryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			switch op {
			case opAcquire:
				return fault{lose: errInjected}
			case opRelease:
				return fault{delay: 5 * time.Second} // a slow backend, well within its limit
			}
			return fault{}
		}), holdfast.WithTTL(30*time.Second), holdfast.WithGrace(10*time.Second), holdfast.WithRequestTimeout(8*time.Second))
		_, _ = c.TryLock(t.Context(), "job")
		time.Sleep(20 * time.Second)
		if isHeld(t, store, "job") {
			t.Error("the clean-up did not get through within 20 s")
		}
	})
}

// "If ctx ends while waiting, the error matches both ctx's error and what kept the
// lock." That ctx ended because some other client or runner was closed is no reason to
// say that this one is.
func TestCorner_AnothersErrClosed(t *testing.T) {
	t.Run("a runner's task", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, memory.New())
			mustLock(t, c, "other")
			r := newRunner(t, c)
			var err error
			done := campaign(t.Context(), r, func(ctx context.Context) error {
				err = c.Do(ctx, "other", func(context.Context) error { return nil })
				return err
			})
			time.Sleep(time.Second)
			_ = r.Close(t.Context())
			<-done //nolint:errcheck // the task told its error
			if !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("the client is open, its lock was held, ctx was canceled: %v", err)
			}
		})
	})
	t.Run("another client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one, two := newClient(t, memory.New()), newClient(t, memory.New())
			mustLock(t, two, "other")
			time.AfterFunc(time.Second, func() { _ = one.Shutdown(context.Background()) })
			var err error
			_ = one.Do(t.Context(), "job", func(ctx context.Context) error {
				_, err = two.Lock(ctx, "other")
				return nil
			})
			if !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("the second client is open, its lock was held, ctx was canceled: %v", err)
			}
		})
	})
}

// Granted and canceled at once: the error still matches ctx's error.
func TestCorner_CanceledWhileGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boss := errors.New("the boss said so")
		ctx, cancel := context.WithCancelCause(t.Context())
		under := memory.New()
		c := newClient(t, changed{Locker: under, acquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			l, err := under.TryAcquire(ctx, req)
			cancel(boss)
			return l, err
		}})
		err := c.Do(ctx, "job", func(context.Context) error { t.Error("begun"); return nil })
		if !errors.Is(err, boss) || !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
}

// What Do returns and what observers are told must be one story.
func TestCorner_LossNoticedByTheClockIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		var seen events
		start := time.Now()
		c := newClient(t, memory.New(), holdfast.WithObserver(seen.observe),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		err := c.Do(t.Context(), "job", func(context.Context) error {
			suspended.Store(int64(time.Minute)) // the machine sleeps for a minute, and the work ends before the keeper looks
			return nil
		})
		synctest.Wait()
		if !errors.Is(err, holdfast.ErrLost) || seen.count(holdfast.EventLost) != 1 || seen.count(holdfast.EventReleased) != 0 {
			t.Errorf("Do returned %v, the observer was told %v", err, seen.types())
		}
	})
}

// "An owner that a backend cannot tell for a moment is not another holder."
func TestCorner_HolderSeenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		n := 0
		c := newClient(t, changed{Locker: memory.New(), acquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
			n++
			rec := holdfast.Record{Name: req.Name, State: driver.StateHeld}
			if n%2 == 1 {
				rec.Owner, rec.Token = "web-3", 7
			}
			return holdfast.Lease{}, &holdfast.HeldError{Record: rec}
		}}, holdfast.WithObserver(seen.observe), holdfast.WithPollInterval(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		synctest.Wait()
		if n := seen.count(holdfast.EventHolderSeen); n != 1 {
			t.Errorf("one holder was told of %d times", n)
		}
	})
}

// A connection string in place of a URL must not show its key.
func TestCorner_OpenLockerShowsNoCredential(t *testing.T) {
	for _, url := range []string{
		"AccountName=app;AccountKey=s3cretKEYs3cretKEY==;BlobEndpoint=https://app.blob.core.windows.net/",
		"s3cretKEY@db1:27017/app",
	} {
		_, err := driver.Open(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "s3cretKEY") {
			t.Errorf("err = %v", err)
		}
	}
}

// "A failed renewal is retried until the local deadline": a pause must not jump over
// the deadline while there is time for one more try.
func TestCorner_LastTryBeforeTheLoss(t *testing.T) {
	for name, ft := range map[string]fault{"refused": {refuse: errInjected}, "hung": {hang: true}} {
		for _, back := range []time.Duration{22 * time.Second, 24200 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " until ", back), func(t *testing.T) {
				lost := 0
				const runs = 200
				for range runs {
					synctest.Test(t, func(t *testing.T) {
						start := time.Now()
						c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
							if op == opRenew && time.Since(start) < back {
								return ft
							}
							return fault{}
						}))
						h := mustLock(t, c, "job")
						time.Sleep(26 * time.Second)
						if h.Err() != nil {
							lost++
						}
						_ = h.Release(t.Context())
					})
				}
				if lost > 0 {
					t.Errorf("the backend is back %v before the deadline, and %d of %d leases are lost", 25*time.Second-back, lost, runs)
				}
			})
		}
	}
}

// The error of Shutdown names what is left.
func TestCorner_ShutdownNamesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opAcquire: {delay: time.Minute, deaf: true}}[op]
		}))
		go func() { _, _ = c.Lock(context.Background(), "job") }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); err == nil || strings.Contains(err.Error(), "expire: :") {
			t.Errorf("err = %v", err)
		}
		time.Sleep(2 * time.Minute)
	})
}
