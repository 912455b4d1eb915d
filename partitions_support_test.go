package holdfast_test

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

// severed is a Locker whose network can be cut: then every call hangs until its
// context ends, and nothing wakes.
type severed struct {
	holdfast.Locker
	cut      atomic.Bool
	seatless atomic.Bool                            // attempts at places fail
	unfit    atomic.Bool                            // attempts at partitions fail
	seated   atomic.Bool                            // renewals of places get through a cut
	without  string                                 // "watch", "batch", "lists": these and what is better are absent
	blank    bool                                   // a batched read tells no more of a held lock than that it is
	lie      atomic.Pointer[func(*holdfast.Record)] // changes what is read
	skip     atomic.Int64                           // so many of the next batched reads fail for every other name
	reads    atomic.Int64                           // looks at many records
	single   atomic.Int64                           // looks at one
	tries    atomic.Int64                           // attempts
}

func (s *severed) gate(ctx context.Context) error {
	if !s.cut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *severed) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	s.tries.Add(1)
	if err := s.gate(ctx); err != nil {
		return holdfast.Lease{}, err
	}
	if place := strings.Contains(req.Name, "member"); s.unfit.Load() && !place || s.seatless.Load() && place {
		return holdfast.Lease{}, errInjected
	}
	return s.Locker.TryAcquire(ctx, req)
}

func (s *severed) Renew(ctx context.Context, l holdfast.Lease) error {
	if s.seated.Load() && strings.Contains(l.Name, "member") {
		return s.Locker.Renew(ctx, l)
	}
	return errors.Join(s.gate(ctx), s.Locker.Renew(ctx, l))
}

func (s *severed) Release(ctx context.Context, l holdfast.Lease) error {
	if err := s.gate(ctx); err != nil {
		return err
	}
	return s.Locker.Release(ctx, l)
}

func (s *severed) Inspect(ctx context.Context, name string) (holdfast.Record, error) {
	s.single.Add(1)
	if err := s.gate(ctx); err != nil {
		return holdfast.Record{}, err
	}
	record, err := s.Locker.Inspect(ctx, name)
	if lie := s.lie.Load(); lie != nil {
		(*lie)(&record)
	}
	return record, err
}

func (s *severed) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	s.reads.Add(1)
	if err := s.gate(ctx); err != nil {
		return func(yield func(holdfast.Record, error) bool) { yield(holdfast.Record{}, err) }
	}
	return s.Locker.Capabilities().Lister.List(ctx, prefix)
}

func (s *severed) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	s.reads.Add(1)
	if err := s.gate(ctx); err != nil {
		return make([]holdfast.Record, len(names)), slices.Repeat([]error{err}, len(names))
	}
	records, errs := s.Locker.Capabilities().BatchInspector.InspectBatch(ctx, names)
	fails := s.skip.Add(-1) >= 0
	for i := range records {
		if records[i].State == driver.StateHeld && s.blank {
			records[i] = holdfast.Record{Name: names[i], State: driver.StateHeld}
		}
		if lie := s.lie.Load(); lie != nil {
			(*lie)(&records[i])
		}
		if fails && i%2 == 0 {
			records[i], errs[i] = holdfast.Record{}, errInjected
		}
	}
	return records, errs
}

func (s *severed) Watch(name string, wake func()) func() {
	return s.Locker.Capabilities().Watcher.Watch(name, func() {
		if !s.cut.Load() {
			wake()
		}
	})
}

func (s *severed) Capabilities() driver.Capabilities {
	switch s.without {
	case "":
		return driver.Capabilities{Watcher: s, Lister: s, BatchInspector: s}
	case "watch":
		return driver.Capabilities{Lister: s, BatchInspector: s}
	case "batch":
		return driver.Capabilities{Lister: s}
	}
	return driver.Capabilities{}
}

// failures counts what was told to have failed.
func (e *events) failures(op string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Type == holdfast.EventError && ev.Op == op {
			n++
		}
	}
	return n
}

// fleet is a group of instances on one store, and what is known of its partitions.
type fleet struct {
	tb        testing.TB
	store     *memory.Store
	n         int
	opts      []partitions.Option
	exclusive *exclusive
	work      func(ctx context.Context, partition int) error // nil: until ctx ends

	mu    sync.Mutex
	last  []string // who had each partition last
	moves int      // takings from another
	live  []*instance
	count int
}

var errRun = errors.New("the end of the run")

// instance is one process of the fleet.
type instance struct {
	*partitions.Partitions
	name   string
	wire   *severed
	client *holdfast.Client
	cancel func()
	done   chan error
	events *events
}

const fleetTTL = 10 * time.Second

// fleetTrial is how long a newcomer leaves the work to the others: the default of
// WithRebalanceEvery, which is longer than a third of fleetTTL.
const fleetTrial = 5 * time.Second

func newFleet(tb testing.TB, n int, opts ...partitions.Option) *fleet {
	return &fleet{tb: tb, store: memory.NewStore(), n: n, exclusive: newExclusive(tb), last: make([]string, n),
		opts: append([]partitions.Option{holdfast.WithTTL(fleetTTL)}, opts...)}
}

// join starts one more instance.
func (f *fleet) join(prepare ...func(*severed)) *instance {
	f.tb.Helper()
	f.count++
	in := &instance{name: fmt.Sprint("instance ", f.count), wire: &severed{Locker: f.store.Locker()}, done: make(chan error, 1), events: &events{}}
	for _, p := range prepare {
		p(in.wire)
	}
	in.client = newClient(f.tb, in.wire)
	fn := func(ctx context.Context, i int) error {
		f.took(ctx, in, i)
		if f.work != nil {
			return f.work(ctx, i)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	p, err := partitions.New(in.client, "group", f.n, fn, append(f.opts, holdfast.WithObserver(in.events.observe))...)
	if err != nil {
		f.tb.Fatal(err)
	}
	in.Partitions = p
	ctx, cancel := context.WithCancelCause(context.Background())
	in.cancel = func() { cancel(errRun) }
	go func() { in.done <- p.Run(ctx) }()
	f.live = append(f.live, in)
	f.tb.Cleanup(func() { in.wire.cut.Store(false); in.cancel() })
	return in
}

// took notes that a partition's work begins.
func (f *fleet) took(ctx context.Context, in *instance, i int) {
	h, ok := holdfast.HoldFromContext(ctx)
	token, _ := holdfast.TokenFromContext(ctx)
	if !ok || token != h.Token() {
		f.tb.Errorf("partition %d: no hold, or not its token", i)
		return
	}
	f.exclusive.enter(ctx, h.Name(), token)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last[i] != "" && f.last[i] != in.name {
		f.moves++
	}
	f.last[i] = in.name
}

// moved returns the moves since the last call.
func (f *fleet) moved() int {
	synctest.Wait() // until what is owned is at work
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// leave ends instances in order.
func (f *fleet) leave(instances ...*instance) {
	f.tb.Helper()
	for _, in := range instances {
		in.cancel()
	}
	for _, in := range instances {
		f.forget(in)
		if err := <-in.done; !errors.Is(err, errRun) {
			f.tb.Errorf("Run returned %v", err)
		}
	}
}

// kill has nothing more of an instance reach the backend.
func (f *fleet) kill(in *instance) {
	f.forget(in)
	in.wire.cut.Store(true)
}

func (f *fleet) forget(in *instance) {
	f.live = slices.DeleteFunc(f.live, func(other *instance) bool { return other == in })
}

// end ends all.
func (f *fleet) end() {
	f.tb.Helper()
	f.leave(slices.Clone(f.live)...)
}

// even reports whether every partition is owned and every instance has its share.
func (f *fleet) even() bool {
	all, m := 0, len(f.live)
	for _, in := range f.live {
		n := len(in.Owned())
		if n < f.n/m || n > (f.n+m-1)/m {
			return false
		}
		all += n
	}
	return all == f.n
}

// record is the name of a partition's lock.
func (f *fleet) record(partition int) string { return fmt.Sprintf("group/partition-%04d", partition) }

// ownership lists what each of the living owns.
func (f *fleet) ownership() (out [][]int) {
	for _, in := range f.live {
		out = append(out, in.Owned())
	}
	return out
}

// untilDone is the work of a partition that never ends by itself.
func untilDone(ctx context.Context, _ int) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// whole reports whether every partition is owned by one of the living, each of which has
// one at most.
func (f *fleet) whole() bool {
	all := 0
	for _, n := range f.shares() {
		if n > 1 {
			return false
		}
		all += n
	}
	return all == f.n
}

// settle waits until the fleet is even and returns how long that took.
func (f *fleet) settle(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.even() {
		if time.Since(begin) > most {
			f.tb.Fatalf("not even after %v: shares of %v", most, f.shares())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// least is how few moves make the fleet even after these have gone and new ones come.
// Call it before they do.
func (f *fleet) least(gone []*instance, come int) (moves int) {
	m := len(f.live) - len(gone) + come
	var counts []int
	for _, in := range f.live {
		if slices.Contains(gone, in) {
			moves += len(in.Owned())
		} else {
			counts = append(counts, len(in.Owned()))
		}
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	for i, c := range counts {
		share := f.n / m
		if i < f.n%m {
			share++
		}
		moves += max(c-share, 0)
	}
	return moves
}

func (f *fleet) shares() (out []int) {
	for _, in := range f.live {
		out = append(out, len(in.Owned()))
	}
	return out
}
