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

// store refuses tokens that are lower than one it has seen.
type store struct {
	mu       sync.Mutex
	highest  uint64
	invoices []string
}

func newStore() *store { return new(store) }

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

func TestWorkerStopsAfterLoss(t *testing.T) {
	for n := 1; n <= 3; n++ {
		synctest.Test(t, func(t *testing.T) {
			b := holdfasttest.New(t)
			store, step, steps := newStore(), b.LoseAtStep("billing", n), 0
			late := make(chan struct{})
			write := func(ctx context.Context, token uint64, invoice string) error {
				step() // the n-th call loses the lock, and returns when the context has ended
				if steps++; steps == n {
					time.AfterFunc(5*time.Second, func() { close(late) }) // the grace
				}
				return store.Write(ctx, token, invoice)
			}
			done := make(chan error, 1)
			go func() { done <- billInvoices(t.Context(), b.Client(), write) }()
			select {
			case err := <-done:
				if !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("loss at write %d: the worker returned %v, want ErrLost", n, err)
				}
			case <-late:
				t.Fatalf("loss at write %d: the worker still runs 5 s later", n)
			}
		})
	}
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

// task is work that lasts until its context ends.
var task = func(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
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

func TestServiceAfterLossAndPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		store := newStore()
		work := func(ctx context.Context) error {
			token, _ := holdfast.TokenFromContext(ctx)
			for ctx.Err() == nil {
				if err := store.Write(ctx, token, "invoice"); err != nil {
					return err // refused: another leads
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			return context.Cause(ctx)
		}
		serve := func(p *holdfasttest.Process) (ended chan error) {
			runner, err := holdfast.NewLeaderAwareRunner(p.Client(), "billing",
				holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}))
			if err != nil {
				t.Fatal(err)
			}
			ended = make(chan error, 1)
			go func() { ended <- runner.Run(t.Context(), work) }()
			return ended
		}

		first, second := b.Process("first"), b.Process("second")
		ended := serve(first)
		hold := first.AwaitHold("billing")
		b.Lose("billing")
		again := first.AwaitHold("billing") // waits for the next hold: the lost one does not count
		if again.Token() <= hold.Token() {
			t.Error("the token did not rise")
		}

		serve(second)
		first.Pause()
		second.AwaitHold("billing") // when the lease has expired
		time.Sleep(time.Minute)     // the steps of first are refused by their token
		first.Resume()
		if first.Hold("billing") != nil {
			t.Error("after the pause both have the lock")
		}
		second.Kill()
		first.AwaitHold("billing") // it campaigns again
		select {
		case err := <-ended:
			t.Errorf("Run ended: %v", err)
		default:
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
	b := holdfasttest.New(t, holdfast.WithTTL(5*time.Second))
	worker := b.Process("worker")
	done := make(chan error, 1)
	go func() { done <- worker.Client().Do(t.Context(), "billing", task) }()
	worker.AwaitHold("billing")
	b.Lose("billing")
	if err := <-done; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the worker returned %v, want ErrLost", err)
	}
}

// The tests of this file that docs/testing.md shows are the same there, and so are the functions that
// they use.
func TestPageShowsTheseTests(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("patterns_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(?:package .*?^\\)\n\n)?((?:func Test|// store).*?)^```$").FindAllStringSubmatch(string(page),
		-1)
	if len(blocks) < 2 {
		t.Fatalf("the page has %d tests", len(blocks))
	}
	for _, m := range blocks {
		if !strings.Contains(string(source), "\n"+m[1]) {
			t.Errorf("patterns_test.go does not have this test of the page:\n%s", m[1])
		}
	}
}
