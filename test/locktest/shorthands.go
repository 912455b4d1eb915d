package locktest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
)

// NewRunnerOf makes a runner for any lock; [NewRunner] makes one for "job".
func NewRunnerOf(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.RunnerOption) *holdfast.LeaderAwareRunner {
	tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(c, name, opts...)
	if err != nil {
		tb.Fatalf("NewLeaderAwareRunner: %v", err)
	}
	return r
}

// PausableClient makes a client, as [NewClient] does, whose process pause suspends for so long: its clock goes on, its timers do not.
func PausableClient(tb testing.TB, l holdfast.Locker, opts ...holdfast.ClientOption) (c *holdfast.Client, pause func(time.Duration)) {
	tb.Helper()
	start, paused := time.Now(), &atomic.Int64{}
	clock := holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(paused.Load()) })
	return NewClient(tb, l, append([]holdfast.ClientOption{clock}, opts...)...), func(d time.Duration) { paused.Store(int64(d)) }
}

// EachWhile has a fault happen to every call of a kind as long as on is true.
func EachWhile(op string, on *atomic.Bool, fault Fault) Faults {
	return func(called string, _ int, _ holdfast.Lease) (none Fault) {
		if called == op && on.Load() {
			return fault
		}
		return none
	}
}

// Break breaks the lease of whoever holds a lock, at once.
func Break(tb testing.TB, store *memory.Store, name string) {
	tb.Helper()
	if err := store.Locker().BreakNow(tb.Context(), name, holdfast.BreakAnybody()); err != nil {
		tb.Fatalf("BreakNow: %v", err)
	}
}

// MustManageAll adds free names, in a bubble, and returns their holds.
func MustManageAll(tb testing.TB, m *leases.LeaseManager, names []string) (holds []*holdfast.Hold) {
	tb.Helper()
	MustAdd(tb, m, names...)
	synctest.Wait()
	for _, name := range names {
		h, ok := m.Hold(name)
		if !ok {
			tb.Fatalf("%q is not held", name)
		}
		holds = append(holds, h)
	}
	return holds
}

// Ended returns a context that has ended.
func Ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// EndsLate is a context that has ended once a caller waits for it, a second later: enough time for a release.
type EndsLate struct{ context.Context }

// Done implements [context.Context].
func (c EndsLate) Done() <-chan struct{} {
	time.Sleep(time.Second)
	return c.Context.Done()
}

// RunPartitions runs the n partitions of a group in one instance, and returns when it owns all. stop ends Run and returns its result.
func RunPartitions(tb testing.TB, c *holdfast.Client, n int, fn func(context.Context, int) error, opts ...partitions.Option) (
	p *partitions.Partitions, stop func() error,
) {
	tb.Helper()
	p, err := partitions.New(c, "group", n, fn, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for begin := time.Now(); len(p.Owned()) < n; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			tb.Fatalf("%d of %d partitions are owned after a minute", len(p.Owned()), n)
		}
	}
	return p, func() error { cancel(); return <-done }
}
