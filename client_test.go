package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

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
		if !errors.Is(err, own) {
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
		c := locktest.NewClient(t, memory.New())
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
		if err := c.Break(t.Context(), "c", 0); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("after Break: %v", h.Err())
		}
		if err := c.Break(t.Context(), "", 0); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("without a name: %v", err)
		}
	})
}

// incapable is a backend without capabilities.
type incapable struct{ holdfast.Locker }

func (incapable) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func TestBackendWithoutCapabilities(t *testing.T) {
	c := locktest.NewClient(t, incapable{memory.New()})
	for _, err := range c.List(t.Context(), "") {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("List: %v", err)
		}
	}
	if err := c.Break(t.Context(), "x", 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Break: %v", err)
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
		"lock":     func() error { _, err := c.TryLock(t.Context(), "x", nil); return err }(),
		"observer": func() error { _, err := c.TryLock(t.Context(), "x", holdfast.WithObserver(nil)); return err }(),
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
			h, err := c.Lock(t.Context(), name, observer)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
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
