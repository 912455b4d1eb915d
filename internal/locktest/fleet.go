package locktest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
)

// AtWork returns how many partitions are at work in the living, on average over d.
func (f *fleet) AtWork(d time.Duration) float64 {
	const step = 100 * time.Millisecond
	sum, samples := 0, 0
	for end := time.Now().Add(d); time.Now().Before(end); samples++ {
		time.Sleep(step)
		for _, in := range f.Live {
			sum += len(in.Owned())
		}
	}
	return float64(sum) / float64(samples)
}

// Stick has the first function whose lease is lost ignore that, until the result is called.
func (f *fleet) Stick() (unstick func()) {
	var stuck atomic.Bool
	done := make(chan struct{})
	f.Work = func(ctx context.Context, _ int) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), holdfast.ErrLost) && stuck.CompareAndSwap(false, true) {
			<-done
		}
		return context.Cause(ctx)
	}
	return sync.OnceFunc(func() { close(done) })
}

// All reports whether every partition is owned by one of the living.
func (f *fleet) All() bool {
	var owned []int
	for _, in := range f.Live {
		owned = append(owned, in.Owned()...)
	}
	slices.Sort(owned)
	return len(owned) == f.N && len(slices.Compact(owned)) == f.N
}

// UntilAll waits until all partitions are owned, and returns how long that took.
func (f *fleet) UntilAll(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.All() {
		if time.Since(begin) > most {
			f.tb.Fatalf("not all partitions are owned after %v: %v", most, f.Ownership())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// Severed is a Locker whose network can be cut: then every call hangs until its
// context ends, and nothing wakes.
type Severed struct {
	holdfast.Locker
	Cut      atomic.Bool
	Seatless atomic.Bool                            // attempts at places fail
	Unfit    atomic.Bool                            // attempts at partitions fail
	Seated   atomic.Bool                            // renewals of places get through a cut
	Without  string                                 // "watch", "batch", "lists": these and what is better are absent
	Blank    bool                                   // a batched read tells no more of a held lock than that it is
	Lie      atomic.Pointer[func(*holdfast.Record)] // changes what is read
	Skip     atomic.Int64                           // so many of the next batched reads fail for every other name
	Reads    atomic.Int64                           // looks at many records
	Single   atomic.Int64                           // looks at one
	Tries    atomic.Int64                           // attempts
}

func (s *Severed) gate(ctx context.Context) error {
	if !s.Cut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *Severed) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	s.Tries.Add(1)
	if err := s.gate(ctx); err != nil {
		return holdfast.Lease{}, err
	}
	if place := strings.Contains(req.Name, "member"); s.Unfit.Load() && !place || s.Seatless.Load() && place {
		return holdfast.Lease{}, ErrInjected
	}
	return s.Locker.TryAcquire(ctx, req)
}

func (s *Severed) Renew(ctx context.Context, l holdfast.Lease) error {
	if s.Seated.Load() && strings.Contains(l.Name, "member") {
		return s.Locker.Renew(ctx, l)
	}
	return errors.Join(s.gate(ctx), s.Locker.Renew(ctx, l))
}

func (s *Severed) Release(ctx context.Context, l holdfast.Lease) error {
	if err := s.gate(ctx); err != nil {
		return err
	}
	return s.Locker.Release(ctx, l)
}

func (s *Severed) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	s.Single.Add(1)
	if err := s.gate(ctx); err != nil {
		return holdfast.Record{}, err
	}
	record, err := s.Locker.Inspect(ctx, name)
	if lie := s.Lie.Load(); lie != nil {
		(*lie)(&record)
	}
	return record, err
}

func (s *Severed) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	s.Reads.Add(1)
	if err := s.gate(ctx); err != nil {
		return func(yield func(holdfast.Record, error) bool) { yield(holdfast.Record{}, err) }
	}
	return s.Locker.Capabilities().Lister.List(ctx, prefix)
}

func (s *Severed) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	s.Reads.Add(1)
	if err := s.gate(ctx); err != nil {
		return make([]holdfast.Record, len(names)), slices.Repeat([]error{err}, len(names))
	}
	records, errs := s.Locker.Capabilities().BatchInspector.InspectBatch(ctx, names)
	fails := s.Skip.Add(-1) >= 0
	for i := range records {
		if records[i].State == driver.StateHeld && s.Blank {
			records[i] = holdfast.Record{Name: names[i], State: driver.StateHeld}
		}
		if lie := s.Lie.Load(); lie != nil {
			(*lie)(&records[i])
		}
		if fails && i%2 == 0 {
			records[i], errs[i] = holdfast.Record{}, ErrInjected
		}
	}
	return records, errs
}

func (s *Severed) Watch(name string, wake func()) func() {
	return s.Locker.Capabilities().Watcher.Watch(name, func() {
		if !s.Cut.Load() {
			wake()
		}
	})
}

func (s *Severed) Capabilities() driver.Capabilities {
	switch s.Without {
	case "":
		return driver.Capabilities{Watcher: s, Lister: s, BatchInspector: s}
	case "watch":
		return driver.Capabilities{Lister: s, BatchInspector: s}
	case "batch":
		return driver.Capabilities{Lister: s}
	}
	return driver.Capabilities{}
}

// fleet is a group of instances on one store, and what is known of its partitions.
type fleet struct {
	tb        testing.TB
	Store     *memory.Store
	N         int
	Opts      []partitions.Option
	exclusive *Exclusive
	Work      func(ctx context.Context, partition int) error // nil: until ctx ends

	mu    sync.Mutex
	last  []string // who had each partition last
	moves int      // takings from another
	Live  []*Instance
	count int
}

var ErrRun = errors.New("the end of the run")

// Instance is one process of the fleet.
type Instance struct {
	*partitions.Partitions
	name   string
	Wire   *Severed
	Client *holdfast.Client
	Cancel func()
	Done   chan error
	Events *Events
}

const FleetTTL = 10 * time.Second

// fleetTrial is how long a newcomer leaves the work to the others: the default of
// WithRebalanceEvery, which is longer than a third of fleetTTL.
const FleetTrial = 5 * time.Second

func NewFleet(tb testing.TB, n int, opts ...partitions.Option) *fleet {
	return &fleet{tb: tb, Store: memory.NewStore(), N: n, exclusive: NewExclusive(tb), last: make([]string, n),
		Opts: append([]partitions.Option{holdfast.WithTTL(FleetTTL)}, opts...)}
}

// Join starts one more instance.
func (f *fleet) Join(prepare ...func(*Severed)) *Instance {
	f.tb.Helper()
	f.count++
	in := &Instance{name: fmt.Sprint("instance ", f.count), Wire: &Severed{Locker: f.Store.Locker()}, Done: make(chan error, 1), Events: &Events{}}
	for _, p := range prepare {
		p(in.Wire)
	}
	in.Client = NewClient(f.tb, in.Wire)
	fn := func(ctx context.Context, i int) error {
		f.took(ctx, in, i)
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
	in.Cancel = func() { cancel(ErrRun) }
	go func() { in.Done <- p.Run(ctx) }()
	f.Live = append(f.Live, in)
	f.tb.Cleanup(func() { in.Wire.Cut.Store(false); in.Cancel() })
	return in
}

// took notes that a partition's work begins.
func (f *fleet) took(ctx context.Context, in *Instance, i int) {
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

// Moved returns the moves since the last call.
func (f *fleet) Moved() int {
	synctest.Wait() // until what is owned is at work
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// Leave ends instances in order.
func (f *fleet) Leave(instances ...*Instance) {
	f.tb.Helper()
	for _, in := range instances {
		in.Cancel()
	}
	for _, in := range instances {
		f.forget(in)
		if err := <-in.Done; !errors.Is(err, ErrRun) {
			f.tb.Errorf("Run returned %v", err)
		}
	}
}

// Kill has nothing more of an instance reach the backend.
func (f *fleet) Kill(in *Instance) {
	f.forget(in)
	in.Wire.Cut.Store(true)
}

func (f *fleet) forget(in *Instance) {
	f.Live = slices.DeleteFunc(f.Live, func(other *Instance) bool { return other == in })
}

// End ends all.
func (f *fleet) End() {
	f.tb.Helper()
	f.Leave(slices.Clone(f.Live)...)
}

// Even reports whether every partition is owned and every instance has its share.
func (f *fleet) Even() bool {
	all, m := 0, len(f.Live)
	for _, in := range f.Live {
		n := len(in.Owned())
		if n < f.N/m || n > (f.N+m-1)/m {
			return false
		}
		all += n
	}
	return all == f.N
}

// Record is the name of a partition's lock.
func (f *fleet) Record(partition int) string { return fmt.Sprintf("group/partition-%04d", partition) }

// Ownership lists what each of the living owns.
func (f *fleet) Ownership() (out [][]int) {
	for _, in := range f.Live {
		out = append(out, in.Owned())
	}
	return out
}

// UntilDone is the work of a partition that never ends by itself.
func UntilDone(ctx context.Context, _ int) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Whole reports whether every partition is owned by one of the living, each of which has
// one at most.
func (f *fleet) Whole() bool {
	all := 0
	for _, n := range f.Shares() {
		if n > 1 {
			return false
		}
		all += n
	}
	return all == f.N
}

// Settle waits until the fleet is even and returns how long that took.
func (f *fleet) Settle(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.Even() {
		if time.Since(begin) > most {
			f.tb.Fatalf("not even after %v: shares of %v", most, f.Shares())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// Least is how few moves make the fleet even after these have gone and new ones come.
// Call it before they do.
func (f *fleet) Least(gone []*Instance, come int) (moves int) {
	m := len(f.Live) - len(gone) + come
	var counts []int
	for _, in := range f.Live {
		if slices.Contains(gone, in) {
			moves += len(in.Owned())
		} else {
			counts = append(counts, len(in.Owned()))
		}
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	for i, c := range counts {
		share := f.N / m
		if i < f.N%m {
			share++
		}
		moves += max(c-share, 0)
	}
	return moves
}

func (f *fleet) Shares() (out []int) {
	for _, in := range f.Live {
		out = append(out, len(in.Owned()))
	}
	return out
}
