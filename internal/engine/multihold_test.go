package engine_test

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
	"github.com/holdfast-go/holdfast/test/locktest"
)

func mustLockAll(t *testing.T, c *holdfast.Client, names ...string) *holdfast.MultiHold {
	t.Helper()
	m, err := c.LockAll(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The first loss ends the one context, whose cause names the lock. The other locks stay held until the release.
func TestFirstLossEndsAHoldOfSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), locktest.Named(locktest.OpRenew, "b", locktest.Fault{Refuse: driver.ErrLost}))
		c := locktest.NewClient(t, f)
		m := mustLockAll(t, c, "c", "a", "b", "a")
		first := m.Hold("a").Context()
		if tokens := m.Tokens(); len(tokens) != 3 || tokens["a"] != m.Token("a") || tokens["a"] == 0 || m.Token("x") != 0 || m.Hold("x") != nil {
			t.Errorf("tokens %v", tokens)
		}
		<-m.Context().Done()
		for what, err := range map[string]error{"cause": context.Cause(m.Context()), "Err": m.Err(), "Err of a": m.Hold("a").Err(),
			"cause of a": context.Cause(first)} {
			if !errors.Is(err, holdfast.ErrLost) || !strings.Contains(err.Error(), `lock "b"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(time.Minute) // the work may still be stopping
		if !locktest.IsHeld(t, store, "a") || !locktest.IsHeld(t, store, "c") {
			t.Error("a or c is free before the release")
		}
		locktest.Release(t, m)
		if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "b") || locktest.IsHeld(t, store, "c") {
			t.Error("held after the release")
		}
	})
}

// A hold of several names that was not renewed in time is lost by the clock, before a context can end.
func TestErrOfSeveralNamesReadsTheClock(t *testing.T) {
	var now atomic.Int64 // the Client's goroutines read it, too
	c := locktest.NewClient(t, memory.New(), holdfast.WithElapsed(func() time.Duration { return time.Duration(now.Load()) }))
	m := mustLockAll(t, c, "a", "b")
	if m.LostIn() != 25*time.Second || m.ExpiresIn() < 29*time.Second || m.Err() != nil {
		t.Errorf("%v, %v, %v", m.LostIn(), m.ExpiresIn(), m.Err())
	}
	now.Store(int64(26 * time.Second))
	if err := m.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Err = %v", err)
	}
}

// DoAll returns the loss beside the function's own error, and releases after the function.
func TestDoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.Refuse(locktest.OpRenew))
		for _, own := range []error{nil, locktest.ErrTask} {
			err := c.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
				m, ok := holdfast.MultiHoldFromContext(ctx)
				if !ok || m.Context() != ctx {
					t.Error("the context has no MultiHold")
				}
				if again, _ := holdfast.MultiHoldFromContext(m.Hold("b").Context()); again != m {
					t.Error("the context of b has another MultiHold")
				}
				if _, ok := holdfast.TokenFromContext(ctx); ok {
					t.Error("one token for two names")
				}
				if token, ok := holdfast.TokenFromContext(m.Hold("b").Context()); !ok || token != m.Token("b") {
					t.Error("the context of b has no token")
				}
				for what, err := range map[string]error{"all": m.Release(ctx), "one": m.Hold("a").Release(ctx)} {
					if !errors.Is(err, holdfast.ErrInvalid) {
						t.Errorf("Release of %s: %v", what, err)
					}
				}
				for _, inner := range []context.Context{ctx, context.WithoutCancel(ctx), m.Hold("b").Context()} {
					if _, err := c.Lock(inner, "a"); !errors.Is(err, holdfast.ErrHeld) {
						t.Errorf("Lock within: %v", err)
					}
					if _, err := c.LockAll(inner, []string{"x", "a"}); !errors.Is(err, holdfast.ErrHeld) {
						t.Errorf("LockAll within: %v", err)
					}
				}
				if err := c.Shutdown(ctx); !errors.Is(err, holdfast.ErrInvalid) {
					t.Errorf("Shutdown within: %v", err)
				}
				<-ctx.Done()
				return own
			})
			if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, cmpErr(own)) {
				t.Errorf("DoAll: %v", err)
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error { panic("work") })
		}()
		if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "b") {
			t.Error("held after a panic")
		}
		canceled, cancel := context.WithCancel(t.Context())
		err := c.DoAll(canceled, []string{"a"}, func(ctx context.Context) error { cancel(); <-ctx.Done(); return context.Cause(ctx) })
		if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("canceled: %v", err)
		}
	})
}

func cmpErr(err error) error {
	if err == nil {
		return holdfast.ErrLost
	}
	return err
}

// Shutdown ends the context before it releases any of the locks, and waits for DoAll's function.
func TestShutdownOfSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var m *holdfast.MultiHold
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if (call.Method == driver.MethodRelease || call.Method == driver.MethodReleaseBatch) && m != nil && m.Context().Err() == nil {
				t.Error("a release is sent before the context has ended")
			}
			return next(ctx, call)
		}))
		m = mustLockAll(t, c, "a", "b")
		done := make(chan struct{})
		go func() {
			_ = c.DoAll(t.Context(), []string{"c", "d"}, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				if !locktest.IsHeld(t, store, "c") || !locktest.IsHeld(t, store, "d") {
					t.Error("released before the function has returned")
				}
				close(done)
				return nil
			})
		}()
		synctest.Wait()
		locktest.ShutDown(t, c)
		<-done
		if err := m.Err(); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Err = %v", err)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if locktest.IsHeld(t, store, name) {
				t.Errorf("%s is held", name)
			}
		}
	})
}

// TryLockAll takes all or nothing.
func TestTryLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		h := locktest.MustLock(t, c, "b", holdfast.WithOwner("web-3"))
		_, err := c.TryLockAll(t.Context(), []string{"c", "b", "a"})
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Record.Name != "b" || held.Record.Owner != "web-3" {
			t.Errorf("err = %v", err)
		}
		if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "c") {
			t.Error("something is held")
		}
		_ = h.Release(t.Context())
		m, err := c.TryLockAll(t.Context(), []string{"c", "b", "a"})
		if err != nil || m.String() != `hold of "a", "b", "c"` {
			t.Fatalf("%v, %v", m, err)
		}
		if printed := fmt.Sprintf("%#v %+v", m, m.Context()); strings.Contains(printed, m.Hold("a").Lease().ID.Reveal()) {
			t.Error("a lease's ID is printed")
		}
	})
}

// Bad input is refused before any request.
func TestSeveralNamesBadInput(t *testing.T) {
	asked := false
	c := locktest.NewClient(t, driver.Intercept(memory.New(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		asked = asked || call.Method == driver.MethodTryAcquire
		return next(ctx, call)
	}))
	work := locktest.EmptyTask
	for want, call := range map[string]func() error{
		"names of 0 locks":            func() error { return c.DoAll(t.Context(), nil, work) },
		"of 1 to 100 different locks": func() error { _, err := c.TryLockAll(t.Context(), []string{}); return err },
		"names of 101 locks":          func() error { _, err := c.LockAll(t.Context(), locktest.Names("n", 101)); return err },
		`Name "" is invalid`:          func() error { _, err := c.LockAll(t.Context(), []string{"a", ""}); return err },
		"Slots 2 is invalid":          func() error { return c.DoAll(t.Context(), []string{"a"}, work, holdfast.WithSlots(2)) },
		"Slots 0 is invalid":          func() error { return c.DoAll(t.Context(), []string{"a"}, work, holdfast.WithSlots(0)) },
		`Name "a#2"`:                  func() error { return c.DoAll(t.Context(), []string{"a#2"}, work) },
		"fn nil":                      func() error { return c.DoAll(t.Context(), []string{"a"}, nil) },
		"ctx nil":                     func() error { return c.DoAll(nil, []string{"a"}, work) }, //nolint:staticcheck // the test's point
		"option nil":                  func() error { return c.DoAll(t.Context(), []string{"a"}, work, nil) },
		"TTL -1s is invalid":          func() error { return c.DoAll(t.Context(), []string{"a"}, work, holdfast.WithTTL(-time.Second)) },
	} {
		err := call()
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.HasPrefix(err.Error(), "holdfast: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if asked {
		t.Error("the backend was asked")
	}
}
