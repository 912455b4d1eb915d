// Package locktest helps the tests of this module. It holds what the tests of several packages
// need:
//
//   - [Faulty], the Locker of package faulty, which delays, refuses or loses calls as a test says,
//     and other Lockers with changed answers;
//   - [NewClient] and shorthands for locks, runners and managers, all on the time of a
//     testing/synctest bubble;
//   - checks from outside: [Exclusive] and [Pool] for exclusion and rising tokens, [Ledger] for
//     the order of events, [Pace] for how often waiters ask the backend;
//   - [Clock], which a test moves, [Log], what a logger or a program has written, [Eventually], which waits, and
//     [Within], which does not wait for longer;
//   - groups: [Waiters], a process that waits for many names, and [Fleet], the instances that
//     share the partitions of a group.
//
// A test that shows a lost lease:
//
//	f := locktest.NewFaulty(t, memory.New(), locktest.Refuse(locktest.OpRenew))
//	h := locktest.MustLock(t, locktest.NewClient(t, f), "job")
//	<-h.Context().Done() // cause ErrLost
package locktest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
)

// NewClient makes a client that goes by the test's time and is shut down at its end.
func NewClient(tb testing.TB, l holdfast.Locker, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	start := time.Now()
	opts = append([]holdfast.ClientOption{
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) }),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	c, err := holdfast.New(l, opts...)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

// MustLock waits for a lock; an error ends the test.
func MustLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.Lock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("Lock: %v", err)
	}
	return h
}

// MustTryLock takes a lock without waiting; an error ends the test.
func MustTryLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.TryLock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("TryLock: %v", err)
	}
	return h
}

// Release releases a hold, or one of several names.
func Release(tb testing.TB, h interface {
	Release(ctx context.Context) error
}) {
	tb.Helper()
	if err := h.Release(tb.Context()); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// IsHeld reports whether the name is held according to the backend.
func IsHeld(tb testing.TB, store *memory.Store, name string) bool {
	tb.Helper()
	l := store.Locker()
	defer func() { _ = l.Close(context.Background()) }()
	r, err := l.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatalf("Inspect: %v", err)
	}
	return r.State == driver.StateHeld
}

// SlotRecord is the name of a slot's record; slots count from 0.
func SlotRecord(name string, slot int) string {
	if slot == 0 {
		return name
	}
	return fmt.Sprintf("%s#%d", name, slot+1)
}

// NewManager makes a LeaseManager.
func NewManager(tb testing.TB, c *holdfast.Client, opts ...leases.Option) *leases.LeaseManager {
	tb.Helper()
	m, err := leases.New(c, opts...)
	if err != nil {
		tb.Fatalf("leases.New: %v", err)
	}
	return m
}

// MustAdd adds names to a manager; an error ends the test.
func MustAdd(tb testing.TB, m *leases.LeaseManager, names ...string) {
	tb.Helper()
	if err := m.Add(names...); err != nil {
		tb.Fatalf("Add: %v", err)
	}
}

// MustManage adds a free name, in a bubble, and returns its hold.
func MustManage(tb testing.TB, m *leases.LeaseManager, name string) *holdfast.Hold {
	tb.Helper()
	MustAdd(tb, m, name)
	synctest.Wait()
	h, ok := m.Hold(name)
	if !ok {
		tb.Fatalf("%q is not held", name)
	}
	return h
}

// ShutDown shuts a client down.
func ShutDown(tb testing.TB, c *holdfast.Client) {
	tb.Helper()
	if err := c.Shutdown(tb.Context()); err != nil {
		tb.Errorf("Shutdown: %v", err)
	}
}

// ShutDownAtEnd shuts a client down at the test's end.
func ShutDownAtEnd(tb testing.TB, c *holdfast.Client) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
	})
}

// MustRemove removes names from a manager; an error ends the test.
func MustRemove(tb testing.TB, m *leases.LeaseManager, names ...string) {
	tb.Helper()
	if err := m.Remove(tb.Context(), names...); err != nil {
		tb.Fatalf("Remove: %v", err)
	}
}

// Names returns n names that begin with prefix.
func Names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return names
}

// Task is a runner's task.
type Task = func(ctx context.Context) error

// NewRunner makes a runner for the lock "job".
func NewRunner(tb testing.TB, c *holdfast.Client, opts ...holdfast.RunnerOption) *holdfast.LeaderAwareRunner {
	tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(c, "job", opts...)
	if err != nil {
		tb.Fatalf("NewLeaderAwareRunner: %v", err)
	}
	return r
}

// Campaign calls r.Run on a goroutine of its own. The channel receives Run's result.
func Campaign(ctx context.Context, r *holdfast.LeaderAwareRunner, task Task) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, task) }()
	return done
}

// EmptyTask returns at once.
func EmptyTask(context.Context) error { return nil }

// LeadUntilCanceled is a task that leads as long as it may.
func LeadUntilCanceled(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// WorkUntilCanceled is the function of a partition that never ends by itself.
func WorkUntilCanceled(ctx context.Context, _ int) error { return LeadUntilCanceled(ctx) }

// SlowToStop works for a time. If its context ends before, it stops a second later, within the grace.
func SlowToStop(ctx context.Context, work time.Duration) {
	select {
	case <-ctx.Done():
		time.Sleep(time.Second)
	case <-time.After(work):
	}
}

// CheckPending fails the test if done has a result already.
func CheckPending(tb testing.TB, done <-chan error, what string) {
	tb.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		tb.Errorf("%s: returned %v", what, err)
	default:
	}
}

// waitLimit only ends a test that hangs: a replica set may need several minutes on a busy machine.
const waitLimit = 4 * time.Minute

// Eventually waits until a condition holds.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(waitLimit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("this did not happen within %v: %s", waitLimit, what)
		}
	}
}

// Within returns what do returns, and fails the test if that takes longer. Then it does not wait on: a call that hangs is the defect.
func Within(tb testing.TB, limit time.Duration, what string, do func() error) error {
	tb.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		tb.Fatalf("%s has not returned after %v", what, limit)
		return nil
	}
}
