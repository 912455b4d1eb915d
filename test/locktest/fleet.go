package locktest

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
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
)

// FleetTTL is the TTL of a Fleet's leases. FleetTrial is how long a newcomer leaves the work to
// the others: the default of WithRebalanceEvery, which is longer than a third of FleetTTL.
const (
	FleetTTL   = 10 * time.Second
	FleetTrial = 5 * time.Second
)

// ErrRunEnded is the cause of the end of an instance's Run.
var ErrRunEnded = errors.New("the end of the run")

// Fleet is a group of instances of Partitions on one store. It checks that no partition has two
// owners, and counts how often partitions move.
type Fleet struct {
	tb        testing.TB
	Store     *memory.Store
	N         int // partitions
	Opts      []partitions.Option
	exclusive *Exclusive
	Work      func(ctx context.Context, partition int) error // nil: until ctx ends

	Live  []*Instance
	count int // instances so far

	mu    sync.Mutex
	last  []string // the last owner of each partition
	moves int      // from one owner to another
}

// Instance is one process of a Fleet.
type Instance struct {
	*partitions.Partitions
	name   string
	Link   *Link
	Client *holdfast.Client
	Cancel func()     // ends Run
	Done   chan error // receives Run's result
	Events *Events
}

// NewFleet makes a group of n partitions, with no instance.
func NewFleet(tb testing.TB, n int, opts ...partitions.Option) *Fleet {
	return &Fleet{tb: tb, Store: memory.NewStore(), N: n, exclusive: NewExclusive(tb), last: make([]string, n),
		Opts: append([]partitions.Option{holdfast.WithTTL(FleetTTL)}, opts...)}
}

// EvenFleet makes a group of n partitions that so many instances own evenly, within some time.
func EvenFleet(tb testing.TB, n, instances int, most time.Duration, opts ...partitions.Option) *Fleet {
	tb.Helper()
	f := NewFleet(tb, n, opts...)
	for range instances {
		f.Join()
	}
	f.UntilEven(most)
	return f
}

// Join starts one more instance, after calls of prepare with its Link.
func (f *Fleet) Join(prepare ...func(*Link)) *Instance {
	f.tb.Helper()
	f.count++
	in := &Instance{name: fmt.Sprint("instance ", f.count), Link: NewLink(f.Store.Locker(), prepare...), Done: make(chan error, 1),
		Events: &Events{}}
	in.Client = NewClient(f.tb, in.Link)
	fn := func(ctx context.Context, i int) error {
		f.begun(ctx, in, i)
		if f.Work != nil {
			return f.Work(ctx, i)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	p, err := partitions.New(in.Client, "group", f.N, fn, append(f.Opts, holdfast.WithObserver(in.Events.Observe))...)
	if err != nil {
		f.tb.Fatal(err)
	}
	in.Partitions = p
	ctx, cancel := context.WithCancelCause(context.Background())
	in.Cancel = func() { cancel(ErrRunEnded) }
	go func() { in.Done <- p.Run(ctx) }()
	f.Live = append(f.Live, in)
	f.tb.Cleanup(func() { in.Link.Cut.Store(false); in.Cancel() })
	return in
}

// begun records that work on a partition begins.
func (f *Fleet) begun(ctx context.Context, in *Instance, i int) {
	h, ok := holdfast.HoldFromContext(ctx)
	token, _ := holdfast.TokenFromContext(ctx)
	if !ok || token != h.Token() {
		f.tb.Errorf("partition %d: no hold, or not its token", i)
		return
	}
	f.exclusive.Enter(ctx, h.Name(), token)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last[i] != "" && f.last[i] != in.name {
		f.moves++
	}
	f.last[i] = in.name
}

// Leave ends instances in order.
func (f *Fleet) Leave(instances ...*Instance) {
	f.tb.Helper()
	for _, in := range instances {
		in.Cancel()
	}
	for _, in := range instances {
		f.forget(in)
		if err := <-in.Done; !errors.Is(err, ErrRunEnded) {
			f.tb.Errorf("Run returned %v", err)
		}
	}
}

// Kill cuts an instance off: nothing more of it reaches the backend.
func (f *Fleet) Kill(in *Instance) {
	f.forget(in)
	in.Link.Cut.Store(true)
}

func (f *Fleet) forget(in *Instance) {
	f.Live = slices.DeleteFunc(f.Live, func(other *Instance) bool { return other == in })
}

// End ends all instances.
func (f *Fleet) End() {
	f.tb.Helper()
	f.Leave(slices.Clone(f.Live)...)
}

// IgnoreFirstLoss makes the first function whose lease is lost ignore that until release is called.
func (f *Fleet) IgnoreFirstLoss() (release func()) {
	var ignored atomic.Bool
	done := make(chan struct{})
	f.Work = func(ctx context.Context, _ int) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), holdfast.ErrLost) && ignored.CompareAndSwap(false, true) {
			<-done
		}
		return context.Cause(ctx)
	}
	return sync.OnceFunc(func() { close(done) })
}

// Record is the name of a partition's lock.
func (f *Fleet) Record(partition int) string { return fmt.Sprintf("group/partition-%04d", partition) }

// Ownership lists the partitions of each live instance.
func (f *Fleet) Ownership() (out [][]int) {
	for _, in := range f.Live {
		out = append(out, in.Owned())
	}
	return out
}

// Shares lists how many partitions each live instance owns.
func (f *Fleet) Shares() (out []int) {
	for _, owned := range f.Ownership() {
		out = append(out, len(owned))
	}
	return out
}

// AllOwned reports whether every partition is owned by a live instance.
func (f *Fleet) AllOwned() bool {
	owned := slices.Concat(f.Ownership()...)
	slices.Sort(owned)
	return len(owned) == f.N && len(slices.Compact(owned)) == f.N
}

// Even reports whether all partitions are owned and each live instance has its share.
func (f *Fleet) Even() bool { return EvenShares(f.N, f.Shares()) }

// OneEach reports whether all partitions are owned and no live instance has more than one.
func (f *Fleet) OneEach() bool {
	all := 0
	for _, n := range f.Shares() {
		if n > 1 {
			return false
		}
		all += n
	}
	return all == f.N
}

// UntilAllOwned waits until all partitions are owned, and returns how long that took.
func (f *Fleet) UntilAllOwned(most time.Duration) time.Duration {
	f.tb.Helper()
	return f.until(f.AllOwned, most)
}

// UntilEven waits until the fleet is even, and returns how long that took.
func (f *Fleet) UntilEven(most time.Duration) time.Duration {
	f.tb.Helper()
	return f.until(f.Even, most)
}

func (f *Fleet) until(reached func() bool, most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !reached() {
		if time.Since(begin) > most {
			f.tb.Fatalf("after %v the instances own %v", most, f.Ownership())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// AverageAtWork returns how many partitions live instances work on, on average over d.
func (f *Fleet) AverageAtWork(d time.Duration) float64 {
	const step = 100 * time.Millisecond
	sum, samples := 0, 0
	for end := time.Now().Add(d); time.Now().Before(end); samples++ {
		time.Sleep(step)
		for _, n := range f.Shares() {
			sum += n
		}
	}
	return float64(sum) / float64(samples)
}

// TakeMoves returns the moves since its last call.
func (f *Fleet) TakeMoves() int {
	synctest.Wait() // until work has begun on all that is owned
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// LeastMoves returns how few moves make the fleet even after these instances have left and so many
// have joined. Call it before they do.
func (f *Fleet) LeastMoves(leaving []*Instance, joining int) int {
	var left, stay []int
	for _, in := range f.Live {
		if n := len(in.Owned()); slices.Contains(leaving, in) {
			left = append(left, n)
		} else {
			stay = append(stay, n)
		}
	}
	return LeastMoves(f.N, left, stay, joining)
}

// EvenShares reports whether these are shares of all n partitions that differ by one at most.
func EvenShares(n int, shares []int) bool {
	all, m := 0, len(shares)
	for _, share := range shares {
		if share < n/m || share > (n+m-1)/m {
			return false
		}
		all += share
	}
	return all == n
}

// LeastMoves returns how few moves make the shares of n partitions even, after the instances with
// the shares left have left, those with the shares stay have stayed, and so many have joined.
func LeastMoves(n int, left, stay []int, joining int) (moves int) {
	for _, share := range left {
		moves += share
	}
	m := len(stay) + joining
	slices.Sort(stay)
	slices.Reverse(stay)
	for i, had := range stay {
		share := n / m
		if i < n%m {
			share++
		}
		moves += max(had-share, 0)
	}
	return moves
}
