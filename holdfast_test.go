package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The documentation of the public packages names no type of an internal package: a program could not use it.
func TestNoInternalTypesInDocumentation(t *testing.T) {
	t.Parallel()
	internal := []string{"engine.", "settings.", "election.", "event.", "renewal.", "bridge.", "scheduler."}
	for _, pkg := range []string{".", "./leases", "./partitions", "./driver", "./lockertest", "./holdfasttest", "./migrating", "./readiness"} {
		text, err := exec.CommandContext(t.Context(), "go", "doc", "-all", pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("go doc %s: %v\n%s", pkg, err, text)
		}
		for line := range strings.Lines(string(text)) {
			declaration := strings.HasPrefix(line, "func ") || strings.HasPrefix(line, "type ") || strings.HasPrefix(line, "\t")
			for _, name := range internal {
				if declaration && !strings.Contains(line, "//") && (strings.Contains(line, " "+name) || strings.Contains(line, "*"+name) ||
					strings.Contains(line, "("+name)) {
					t.Errorf("%s: %s", pkg, line)
				}
			}
		}
	}
}

// Promise 7: the function of Do or a runner cannot release the lock that it runs under.
func TestFunctionCannotReleaseItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		release := func(ctx context.Context) error {
			h, _ := holdfast.HoldFromContext(ctx)
			var invalid *holdfast.InvalidError
			if err := h.Release(ctx); !errors.As(err, &invalid) || invalid.Field != "Release" {
				t.Errorf("Release: %v", err)
			}
			if _, err := c.TryLock(context.Background(), "job"); h.Err() != nil || !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("after Release the hold is %v, and another is granted the lock: %v", h.Err(), err)
			}
			return nil
		}
		if err := c.Do(t.Context(), "job", release); err != nil {
			t.Error(err)
		}
		runner, err := holdfast.NewLeaderAwareRunner(c, "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := runner.Run(t.Context(), release); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		h := locktest.MustLock(t, c, "job") // both have released it
		locktest.Release(t, h)
	})
}

func TestTryDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c, other := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		own := errors.New("own")
		err := c.TryDo(t.Context(), "job", func(ctx context.Context) error {
			if _, ok := holdfast.TokenFromContext(ctx); !ok {
				t.Error("no token")
			}
			start := time.Now()
			var held *holdfast.HeldError
			if err := other.TryDo(ctx, "job", func(context.Context) error { t.Error("two at once"); return nil }); !errors.As(err, &held) {
				t.Errorf("while held: %v", err)
			}
			if waited := time.Since(start); waited != 0 {
				t.Errorf("waited for %v", waited)
			}
			return own
		})
		if err != own { //nolint:errorlint // it is returned as it is
			t.Errorf("the function's error became %v", err)
		}
		if locktest.IsHeld(t, store, "job") {
			t.Error("not released")
		}
		if err := c.TryDo(t.Context(), "job", nil); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("without a function: %v", err)
		}
	})
}

func TestListAndBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if broken := call.Method == driver.MethodBreak || call.Method == driver.MethodBreakNow; broken && call.Target == (driver.BreakTarget{}) {
				t.Errorf("%s without a target is sent", call.Method)
			}
			return next(ctx, call)
		}))
		for _, name := range []string{"b/2", "a", "b/1"} {
			locktest.MustLock(t, c, name)
		}
		var names []string
		for r, err := range c.List(t.Context(), "b/") {
			if err != nil || r.State != driver.StateHeld {
				t.Errorf("%+v, %v", r, err)
			}
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"b/1", "b/2"}) {
			t.Errorf("listed %q", names)
		}
		h := locktest.MustLock(t, c, "c")
		if err := c.Break(t.Context(), "c", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("after Break: %v", h.Err())
		}
		h = locktest.MustLock(t, c, "d")
		var held *holdfast.HeldError
		if err := c.BreakNow(t.Context(), "d", holdfast.BreakToken(h.Token()+1)); !errors.As(err, &held) {
			t.Errorf("BreakNow of another holder: %v", err)
		}
		if err := c.BreakNow(t.Context(), "d", holdfast.BreakToken(h.Token())); err != nil {
			t.Fatal(err)
		}
		locktest.MustTryLock(t, locktest.NewClient(t, store.Locker()), "d") // at once, while the first still believes that it holds
		if <-h.Context().Done(); !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("after BreakNow: %v", h.Err())
		}
		for method, call := range map[string]func(context.Context, string, holdfast.BreakTarget) error{"Break": c.Break, "BreakNow": c.BreakNow} {
			if err := call(t.Context(), "", driver.BreakAnybody()); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s without a name: %v", method, err)
			}
			var invalid *driver.InvalidError
			if err := call(t.Context(), "c", holdfast.BreakTarget{}); !errors.As(err, &invalid) || invalid.Field != "Target" ||
				invalid.Value != "nobody" || !strings.Contains(invalid.Rule, "BreakAnybody") {
				t.Errorf("%s without a target: %v", method, err)
			}
		}
	})
}

// incapable is a backend without capabilities.
type incapable struct{ holdfast.Locker }

func (incapable) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func TestBackendWithoutCapabilities(t *testing.T) {
	c := locktest.NewClient(t, incapable{memory.New()})
	var listed []error
	for _, err := range c.List(t.Context(), "") {
		listed = append(listed, err)
	}
	if len(listed) != 1 || !errors.Is(listed[0], errors.ErrUnsupported) {
		t.Errorf("List yields %v", listed)
	}
	for method, call := range map[string]func(context.Context, string, holdfast.BreakTarget) error{"Break": c.Break, "BreakNow": c.BreakNow} {
		if err := call(t.Context(), "x", driver.BreakAnybody()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", method, err)
		}
	}
	h := locktest.MustTryLock(t, c, "x")
	if err := h.WriteData(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteData: %v", err)
	}
	if _, err := h.Data(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Data: %v", err)
	}
	if err := h.UpdateData(t.Context(), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no update: %v", err)
	}
}

// An observer given to one lock is notified of that lock's events only.
func TestObserverOfOneLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got, all []string
		note := func(list *[]string) func(holdfast.Event) {
			return func(e holdfast.Event) {
				mu.Lock()
				defer mu.Unlock()
				*list = append(*list, e.Type.String()+" "+e.Name)
			}
		}
		c := locktest.NewClient(t, memory.New(), holdfast.WithObserver(note(&all)))
		for _, name := range []string{"a", "b"} {
			var opts []holdfast.Option
			if name == "b" {
				opts = append(opts, holdfast.WithObserver(note(&got)))
			}
			if err := c.Do(t.Context(), name, func(context.Context) error { return nil }, opts...); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"acquired b", "released b"}; !slices.Equal(got, want) {
			t.Errorf("the lock's observer got %q, want %q", got, want)
		}
		if want := []string{"acquired a", "released a", "acquired b", "released b"}; !slices.Equal(all, want) {
			t.Errorf("the client's observer got %q, want %q", all, want)
		}
	})
}

func TestNilOptions(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for what, err := range map[string]error{
		"function": c.Do(t.Context(), "x", nil),
		"lock":     func() error { _, err := c.TryLock(t.Context(), "x", nil); return err }(),
		"observer": func() error { _, err := c.TryLock(t.Context(), "x", holdfast.WithObserver(nil)); return err }(),
		"client's": func() error { _, err := holdfast.New(memory.New(), holdfast.WithObserver(nil)); return err }(),
		"client":   func() error { _, err := holdfast.New(memory.New(), nil); return err }(),
		"typed":    func() error { _, err := holdfast.New(memory.New(), holdfast.Option(nil)); return err }(),
		"logger":   func() error { _, err := holdfast.New(memory.New(), holdfast.WithLogger(nil)); return err }(),
		"clock":    func() error { _, err := holdfast.New(memory.New(), holdfast.WithElapsed(nil)); return err }(),
		"runner":   func() error { _, err := holdfast.NewLeaderAwareRunner(c, "x", nil); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// One WithObserver option, given to many calls, still calls its function one event at a time.
func TestObserverOfManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		var running, most, calls atomic.Int64
		observer := holdfast.WithObserver(func(holdfast.Event) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			calls.Add(1)
		})
		for _, name := range []string{"a", "b", "c", "same", "same", "same"} {
			h := locktest.MustLock(t, c, name, observer)
			locktest.Release(t, h)
		}
		time.Sleep(time.Minute)
		if most.Load() != 1 || calls.Load() != 12 {
			t.Errorf("%d calls, up to %d at once; want 12, one at a time", calls.Load(), most.Load())
		}
	})
}

// The function of Do may store a last result after its caller has canceled: the lease is renewed
// until the function has returned.
func TestDataAfterCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		ctx, cancel := context.WithCancel(t.Context())
		var hold *holdfast.Hold
		err := c.Do(ctx, "job", func(ctx context.Context) error {
			cancel()
			hold, _ = holdfast.HoldFromContext(ctx)
			return hold.WriteData(context.WithoutCancel(ctx), []byte("checkpoint"))
		})
		if err != nil {
			t.Errorf("Do: %v", err)
		}
		if err := hold.WriteData(t.Context(), nil); !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("after the release: %v", err)
		}
		r, err := c.Inspect(t.Context(), "job")
		if err != nil || string(r.Data) != "checkpoint" {
			t.Errorf("the data are %q, %v", r.Data, err)
		}
	})
}

// However a hold is printed, it shows the lease without its ID, and none of its own fields.
func TestHoldIsPrintedAsItsLease(t *testing.T) {
	h := locktest.MustLock(t, locktest.NewClient(t, memory.New(), holdfast.WithOwner("me")), "job")
	text := h.String()
	for format, want := range map[string]string{"%v": text, "%+v": text, "%s": text, "%#v": "holdfast.Hold(" + text + ")"} {
		if got := fmt.Sprintf(format, h); got != want {
			t.Errorf("%s prints %q, want %q", format, got, want)
		}
	}
}

// A nil context is an error that names it, and no panic.
func TestNilContext(t *testing.T) {
	var none context.Context
	c, err := holdfast.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Shutdown(context.Background()) }()
	held := locktest.MustLock(t, c, "held")
	runner, err := holdfast.NewLeaderAwareRunner(c, "leader")
	if err != nil {
		t.Fatal(err)
	}
	manager, err := leases.New(c)
	if err != nil {
		t.Fatal(err)
	}
	noop := func(context.Context) error { return nil }
	shards, err := partitions.New(c, "group", 1, func(context.Context, int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Open":            func() error { _, err := holdfast.Open(none, "mem:"); return err },
		"Do":              func() error { return c.Do(none, "n", noop) },
		"TryDo":           func() error { return c.TryDo(none, "n", noop) },
		"Lock":            func() error { _, err := c.Lock(none, "n"); return err },
		"TryLock":         func() error { _, err := c.TryLock(none, "n"); return err },
		"Inspect":         func() error { _, err := c.Inspect(none, "n"); return err },
		"Break":           func() error { return c.Break(none, "n", holdfast.BreakToken(1)) },
		"BreakNow":        func() error { return c.BreakNow(none, "n", holdfast.BreakToken(1)) },
		"List":            func() error { return firstErr(c.List(none, "")) },
		"Observe":         func() error { return firstErr(c.Observe(none, "n")) },
		"Data":            func() error { _, err := held.Data(none); return err },
		"WriteData":       func() error { return held.WriteData(none, nil) },
		"UpdateData":      func() error { return held.UpdateData(none, func(b []byte) ([]byte, error) { return b, nil }) },
		"Run":             func() error { return runner.Run(none, noop) },
		"RunTaskOnLeader": func() error { _, err := runner.RunTaskOnLeader(none, noop); return err },
		"Leader":          func() error { _, err := runner.Leader(none); return err },
		"StepDown":        func() error { return runner.StepDown(none) },
		"Close":           func() error { return runner.Close(none) },
		"Remove":          func() error { return manager.Remove(none, "n") },
		"manager's Close": func() error { return manager.Close(none) },
		"partitions' Run": func() error { return shards.Run(none) },
		"Shutdown":        func() error { return c.Shutdown(none) },
	} {
		var invalid *holdfast.InvalidError
		if err := call(); !errors.As(err, &invalid) || invalid.Field != "ctx" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := holdfast.HoldFromContext(none); ok {
		t.Error("a nil context has a hold")
	}
	if _, ok := holdfast.TokenFromContext(none); ok {
		t.Error("a nil context has a token")
	}
	holdfast.Heartbeat(none)
}

// A nil option of a LeaseManager or of Partitions is an error, and no panic.
func TestNilOptionsOfManyNames(t *testing.T) {
	c, err := holdfast.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Shutdown(context.Background()) }()
	work := func(context.Context, int) error { return nil }
	for name, call := range map[string]func() error{
		"New, hook":       func() error { _, err := holdfast.New(memory.New(), holdfast.WithHook(nil)); return err },
		"leases":          func() error { _, err := leases.New(c, nil); return err },
		"leases, option":  func() error { _, err := leases.New(c, holdfast.Option(nil)); return err },
		"leases, fn":      func() error { _, err := leases.New(c, leases.WithFunc(nil)); return err },
		"partitions":      func() error { _, err := partitions.New(c, "group", 1, work, nil); return err },
		"partitions, opt": func() error { _, err := partitions.New(c, "group", 1, work, holdfast.Option(nil)); return err },
	} {
		var invalid *holdfast.InvalidError
		if err := call(); !errors.As(err, &invalid) || invalid.Value != "nil" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func firstErr(seq func(func(holdfast.Record, error) bool)) (first error) {
	for _, err := range seq {
		return err
	}
	return nil
}

// Where an option has no meaning it is refused before any request. Whoever adds an option of locks decides it here.
func TestEveryOptionInEveryPlace(t *testing.T) {
	d, c := time.Second, locktest.NewClient(t, memory.New())
	options := map[string]holdfast.Option{
		"WithTTL": holdfast.WithTTL(time.Minute), "WithGrace": holdfast.WithGrace(4 * d), "WithRenewEvery": holdfast.WithRenewEvery(d),
		"WithRequestTimeout": holdfast.WithRequestTimeout(d), "WithPollInterval": holdfast.WithPollInterval(d),
		"WithOwner": holdfast.WithOwner("me"), "WithData": holdfast.WithData([]byte("x")), "WithSlots": holdfast.WithSlots(2),
		"WithShared": holdfast.WithShared(), "WithOverrunHook": holdfast.WithOverrunHook(func(holdfast.Event) {}),
		"WithObserver": holdfast.WithObserver(func(holdfast.Event) {}),
	}
	refused := map[string]string{"WithSlots": "several names", "WithShared": "runner, LeaseManager, Partitions, several names"}
	code, err := os.ReadFile("options.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^func (With\w+)\(.*\) Option \{`).FindAllStringSubmatch(string(code), -1) {
		o := options[m[1]] // nil, which is refused, if it is missing here
		_, runner := holdfast.NewLeaderAwareRunner(c, "runner", o)
		_, manager := leases.New(c, o)
		_, parts := partitions.New(c, "group", 2, func(context.Context, int) error { return nil }, o)
		all, several := c.TryLockAll(t.Context(), []string{"a", "b"}, o)
		if several == nil {
			several = all.Release(t.Context())
		}
		for where, err := range map[string]error{"runner": runner, "LeaseManager": manager, "Partitions": parts, "several names": several} {
			if refuses := strings.Contains(refused[m[1]], where); refuses != errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %s: %v", where, m[1], err)
			}
		}
	}
}
