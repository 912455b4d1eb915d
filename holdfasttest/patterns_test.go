package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// The tests of this file that docs/testing.md shows are the same there.
func TestPageShowsTheseTests(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("patterns_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(func Test.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Fatalf("the page has %d tests", len(blocks))
	}
	for _, m := range blocks {
		if !strings.Contains(string(source), "\n"+m[1]) {
			t.Errorf("patterns_test.go does not have this test of the page:\n%s", m[1])
		}
	}
}

// store refuses tokens that are lower than one it has seen.
type store struct {
	mu       sync.Mutex
	highest  uint64
	invoices []string
}

func newStore() *store { return &store{} }

func (s *store) Write(_ context.Context, token uint64, invoice string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.highest {
		return fmt.Errorf("token %d is lower than %d", token, s.highest)
	}
	s.highest = token
	if !slices.Contains(s.invoices, invoice) {
		s.invoices = append(s.invoices, invoice)
	}
	return nil
}

func (s *store) Invoices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.invoices)
}

// billInvoices writes three invoices, which takes six minutes.
func billInvoices(ctx context.Context, client *holdfast.Client, write func(ctx context.Context, token uint64, invoice string) error) error {
	return client.Do(ctx, "billing", func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		for n := range 3 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(2 * time.Minute):
			}
			if err := write(ctx, token, fmt.Sprint("invoice ", n+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

var task = func(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestWorkerStopsAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		worker := b.Process("worker")
		done := make(chan error, 1)
		go func() { done <- billInvoices(t.Context(), worker.Client(), newStore().Write) }()
		worker.AwaitHold("billing")
		time.Sleep(time.Minute) // virtual time, in the middle of the work
		b.Lose("billing")
		lost := time.Now()
		if err := <-done; !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the worker returned %v, want ErrLost", err)
		}
		if late := time.Since(lost); late > 5*time.Second { // the grace
			t.Errorf("the worker stopped %v after the loss", late)
		}
	})
}

func TestLossAtEachStep(t *testing.T) {
	for n := 1; n <= 3; n++ {
		synctest.Test(t, func(t *testing.T) {
			b := holdfasttest.New(t)
			store, step := newStore(), b.LoseAtStep("billing", n)
			write := func(ctx context.Context, token uint64, invoice string) error {
				step() // the lock is lost just before write number n
				return store.Write(ctx, token, invoice)
			}
			if err := billInvoices(t.Context(), b.Client(), write); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("loss at write %d: %v, want ErrLost", n, err)
			}
			if err := billInvoices(t.Context(), b.Client(), store.Write); err != nil { // another process continues
				t.Errorf("after a loss at write %d: %v", n, err)
			}
			if got := len(store.Invoices()); got != 3 {
				t.Errorf("after a loss at write %d there are %d invoices", n, got)
			}
		})
	}
}

func TestStorageRefusesTheLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		store := newStore()
		stale, current := b.StaleHold("billing")
		if err := store.Write(t.Context(), current.Token(), "invoice 1"); err != nil {
			t.Error(err)
		}
		if err := store.Write(t.Context(), stale.Token(), "invoice 2"); err == nil {
			t.Error("the storage accepted the write of an earlier holder")
		}
	})
}

func TestPausedWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		first, second := b.Process("first"), b.Process("second")
		store := newStore()
		write := func(ctx context.Context, token uint64, invoice string) error {
			if invoice != "invoice 2" {
				return store.Write(ctx, token, invoice)
			}
			first.Pause() // it has checked its lock, and has not written yet
			defer first.Resume()
			if err := billInvoices(t.Context(), second.Client(), store.Write); err != nil {
				t.Errorf("the second process: %v", err)
			}
			err := store.Write(ctx, token, invoice)
			if err == nil {
				t.Error("the storage accepted the late write")
			}
			return err
		}
		if err := billInvoices(t.Context(), first.Client(), write); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the paused process: %v, want ErrLost", err)
		}
	})
}

func TestBackendAwayForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		service := b.Process("service")
		runner, err := holdfast.NewLeaderAwareRunner(service.Client(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- runner.Run(ctx, task) }()
		first := service.AwaitHold("billing")

		b.FailFor(10 * time.Second) // shorter than the deadline of 25 s: nothing happens
		time.Sleep(time.Minute)
		if err := first.Err(); err != nil {
			t.Errorf("after 10 s without the backend: %v", err)
		}

		b.FailFor(time.Minute)
		<-first.Context().Done()              // the task must stop now
		again := service.AwaitHold("billing") // the runner leads again
		if again.Token() <= first.Token() {
			t.Error("the token did not rise")
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestSecondProcessTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		first, second := b.Process("first"), b.Process("second")
		for _, p := range []*holdfasttest.Process{first, second} {
			go func() { _ = p.Client().Do(t.Context(), "billing", task) }()
			synctest.Wait() // first is first
		}
		first.AwaitHold("billing")
		if second.Hold("billing") != nil {
			t.Error("both have the lock")
		}
		killed := time.Now()
		first.Kill()
		second.AwaitHold("billing")
		if waited := time.Since(killed); waited > 31*time.Second { // the TTL
			t.Errorf("the second process took over after %v", waited)
		}
	})
}

func TestSlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		b.Slow(2 * time.Second) // each call
		if err := billInvoices(t.Context(), b.Client(), newStore().Write); err != nil {
			t.Errorf("with a slow backend: %v", err)
		}
	})
}

func TestInRealTime(t *testing.T) {
	b := holdfasttest.New(t, holdfast.WithTTL(2*time.Second))
	worker := b.Process("worker")
	done := make(chan error, 1)
	go func() { done <- worker.Client().Do(t.Context(), "billing", task) }()
	worker.AwaitHold("billing")
	b.Lose("billing")
	if err := <-done; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the worker returned %v, want ErrLost", err)
	}
}
