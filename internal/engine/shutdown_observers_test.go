package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A function of the program that calls Shutdown, or that waits for a Shutdown of another goroutine, keeps it waiting for a limited time
// only, although the context has no end.
func TestShutdownThatAFunctionWaitsFor(t *testing.T) {
	const observer, hook = "an observer or an overrun hook has not returned for 5s", "a telemetry.Hook has not returned for 5s"
	method := func(which string, number int32) func(wait func()) holdfast.ClientOption {
		return func(wait func()) holdfast.ClientOption {
			var calls atomic.Int32
			return holdfast.WithHook(badHook{do: func(method string) context.Context {
				if method == which && calls.Add(1) == number {
					wait()
				}
				return nil
			}})
		}
	}
	observes := func(typ holdfast.EventType) func(wait func()) holdfast.ClientOption {
		return func(wait func()) holdfast.ClientOption {
			return holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == typ {
					wait()
				}
			})
		}
	}
	for what, test := range map[string]struct {
		option func(wait func()) holdfast.ClientOption
		lost   bool // renewals fail
		want   string
	}{
		"observer":            {observes(holdfast.EventAcquired), false, observer},
		"observer of the end": {observes(holdfast.EventReleased), false, observer},
		"overrun hook": {func(wait func()) holdfast.ClientOption {
			return holdfast.WithOverrunHook(func(holdfast.Event) { wait() })
		}, true, observer},
		"Begin":   {method("Begin", 2), false, hook}, // Shutdown does not wait for the first
		"End":     {method("End", 1), false, hook},
		"Renewed": {method("Renewed", 1), false, hook},
		"Lost":    {method("Lost", 1), true, hook},
	} {
		for _, itself := range []bool{true, false} {
			locktest.Bubble(t, fmt.Sprintf("%s, itself %v", what, itself), func(t *testing.T) {
				var c *holdfast.Client
				results, shut := make(chan error, 1), make(chan struct{})
				var faults locktest.Faults
				if test.lost {
					faults = locktest.Refuse(locktest.OpRenew)
				}
				c = locktest.FaultyClient(t, memory.New(), faults, test.option(func() {
					if !itself {
						<-shut
					} else if err := c.Shutdown(context.Background()); len(results) == 0 {
						results <- err
					}
				}))
				var locking sync.WaitGroup
				locking.Go(func() {
					if h, err := c.Lock(t.Context(), "job"); err == nil {
						time.Sleep(35 * time.Second)
						_ = h.Release(context.Background())
					}
				})
				if !itself {
					time.Sleep(40 * time.Second)
					begin := time.Now()
					results <- c.Shutdown(context.Background())
					if took := time.Since(begin); took > 11*time.Second {
						t.Errorf("Shutdown took %v", took)
					}
				}
				if err := <-results; err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("Shutdown: %v", err)
				}
				close(shut)
				locking.Wait()
			})
		}
	}
}

// Slow observers are waited for as long as their calls return.
func TestShutdownWaitsForSlowObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(func(holdfast.Event) { time.Sleep(4 * time.Second); n++ }))
		for range 3 {
			_ = locktest.MustLock(t, c, "job").Release(t.Context())
		}
		if err := c.Shutdown(t.Context()); err != nil || n != 6 {
			t.Errorf("%d events of 6, Shutdown: %v", n, err)
		}
	})
}

// badHook breaks the rules in every method.
type badHook struct {
	telemetry.Ignore
	do func(method string) context.Context
}

func (b badHook) Begin(context.Context, telemetry.Operation) context.Context { return b.do("Begin") }
func (b badHook) End(context.Context, telemetry.Operation, time.Duration, error) {
	b.do("End")
}
func (b badHook) Lost(context.Context, telemetry.Operation, time.Duration, error) { b.do("Lost") }
func (b badHook) Overrun(context.Context, telemetry.Operation)                    { b.do("Overrun") }
func (b badHook) Renewed(context.Context, telemetry.Operation, time.Duration)     { b.do("Renewed") }
func (b badHook) Dropped()                                                        { b.do("Dropped") }

// A hook that panics, or that returns no context, ends no renewal, and is logged, but not each time.
func TestHookThatPanics(t *testing.T) {
	for name, do := range map[string]func(string) context.Context{
		"panics": func(string) context.Context { panic("oops") }, "no context": func(string) context.Context { return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			c := locktest.NewClient(t, memory.New(), holdfast.WithHook(badHook{do: do}),
				holdfast.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
			h := locktest.MustLock(t, c, "job")
			time.Sleep(5 * time.Minute)
			if err := h.Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := errors.Join(h.Release(t.Context()), c.Shutdown(t.Context())); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := strings.Count(out.String(), "panic=oops"); name == "panics" && (n < 1 || n > 7) {
				t.Errorf("logged %d times:\n%s", n, out.String())
			}
		})
	}
}

// A hook that is slow is logged.
func TestSlowHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := locktest.NewClient(t, memory.New(),
			holdfast.WithHook(badHook{do: func(string) context.Context { time.Sleep(2 * time.Second); return nil }}),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		locktest.MustLock(t, c, "job")
		if err := c.Shutdown(t.Context()); err != nil || !strings.Contains(out.String(), "a telemetry hook is slow") {
			t.Errorf("Shutdown: %v, log:\n%s", err, out.String())
		}
	})
}

// A function of one Client may call Shutdown of another, which does not take it for its own.
func TestShutdownByAFunctionOfAnotherClient(t *testing.T) {
	for _, kind := range []string{"hook", "observer", "second call"} {
		synctest.Test(t, func(t *testing.T) {
			pause := make(chan struct{})
			other := locktest.NewClient(t, slowClose{memory.New(), pause})
			results := make(chan error, 2)
			opt := holdfast.ClientOption(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventAcquired {
					results <- other.Shutdown(context.Background())
				}
			}))
			if kind == "hook" {
				opt = holdfast.WithHook(badHook{do: func(method string) context.Context {
					if method == "Renewed" {
						results <- other.Shutdown(context.Background())
					}
					return nil
				}})
			}
			if kind == "second call" {
				go func() { results <- other.Shutdown(context.Background()) }()
				synctest.Wait()
			}
			locktest.MustLock(t, locktest.NewClient(t, memory.New(), opt), "job")
			time.Sleep(11 * time.Second)
			close(pause)
			synctest.Wait()
			want := 1
			if kind == "second call" {
				want = 2
			}
			if len(results) != want {
				t.Errorf("%s: %d calls of Shutdown have returned", kind, len(results))
			}
			for range len(results) {
				if err := <-results; err != nil {
					t.Errorf("%s: Shutdown: %v", kind, err)
				}
			}
		})
	}
}

// slowClose is a Locker whose Close waits.
type slowClose struct {
	holdfast.Locker
	until chan struct{}
}

func (s slowClose) Close(ctx context.Context) error { <-s.until; return s.Locker.Close(ctx) }

// A nil context releases the lock, and so does one whose methods panic: an answered release asks it nothing.
func TestReleaseWithABadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ctx := range map[string]context.Context{"nil": nil, "panics": badContext{t.Context()}} {
			store := memory.NewStore()
			c := locktest.NewClient(t, store.Locker())
			h := locktest.MustLock(t, c, "job")
			if err := h.Release(ctx); err != nil || locktest.IsHeld(t, store, "job") {
				t.Errorf("%s: Release: %v; held: %v", name, err, locktest.IsHeld(t, store, "job"))
			}
			if err := c.Shutdown(context.Background()); err != nil || locktest.IsHeld(t, store, "job") {
				t.Errorf("%s: Shutdown: %v; held: %v", name, err, locktest.IsHeld(t, store, "job"))
			}
		}
	})
}

type badContext struct{ context.Context }

func (badContext) Err() error { panic("oops") }
