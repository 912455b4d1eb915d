package partbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/internal/serverprocess"
)

func TestMain(m *testing.M) { serverprocess.Main(m) }

// fleet is a group of instances, each with a MongoDB client of its own, and what is known
// of their partitions.
type fleet struct {
	tb    testing.TB
	n     int
	ttl   time.Duration
	uri   string
	names []string // database and collection
	live  []*instance

	mu    sync.Mutex
	last  []holding // of each partition
	moves int
	twice int // a second live owner, or a token that did not rise
}

// holding is who had a partition last.
type holding struct {
	ctx   context.Context
	in    *instance
	token uint64
}

type instance struct {
	*holdfast.Partitions
	server *mongodriver.Client
	client *holdfast.Client
	cancel context.CancelFunc
	done   chan error
	finds  atomic.Int64 // commands that read
	writes atomic.Int64 // commands that write, each of up to 500 renewals
}

func newFleet(tb testing.TB, n int, ttl time.Duration) *fleet {
	coll := mongotest.Collection(tb)
	return &fleet{tb: tb, n: n, ttl: ttl, uri: mongotest.URI(tb), names: []string{coll.Database().Name(), coll.Name()}, last: make([]holding, n)}
}

// join starts instances.
func (f *fleet) join(count int) {
	f.tb.Helper()
	var joining sync.WaitGroup
	come := make([]*instance, count)
	for i := range come {
		joining.Go(func() { come[i] = f.start() })
	}
	joining.Wait()
	for _, in := range come {
		if in == nil {
			f.tb.Fatal("an instance did not start")
		}
		f.live = append(f.live, in)
		go func() { in.done <- in.Run(f.running(in)) }()
	}
}

func (f *fleet) running(in *instance) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	in.cancel = cancel
	f.tb.Cleanup(cancel)
	return ctx
}

// start makes an instance that does not run yet, or nil.
func (f *fleet) start() *instance {
	in := &instance{done: make(chan error, 1)}
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		switch e.CommandName {
		case "find":
			in.finds.Add(1)
		case "update", "findAndModify":
			in.writes.Add(1)
		}
	}}
	var err error
	if in.server, err = mongodriver.Connect(options.Client().ApplyURI(f.uri).SetMonitor(monitor)); err != nil {
		f.tb.Error(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	locker, err := mongo.New(ctx, in.server.Database(f.names[0]).Collection(f.names[1]), mongo.WithLogger(quiet))
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	if in.client, err = holdfast.New(locker, holdfast.WithTTL(f.ttl), holdfast.WithLogger(quiet)); err != nil {
		f.tb.Error(err)
		return nil
	}
	f.tb.Cleanup(func() { f.stop(in) })
	in.Partitions, err = holdfast.NewPartitions(in.client, "bench", f.n, func(ctx context.Context, i int) error {
		f.took(ctx, in, i)
		<-ctx.Done()
		return nil
	})
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	return in
}

// stop ends what is left of an instance.
func (f *fleet) stop(in *instance) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := in.client.Shutdown(ctx); err != nil && slices.Contains(f.live, in) {
		f.tb.Error(err)
	}
	if err := in.server.Disconnect(ctx); err != nil && !errors.Is(err, mongodriver.ErrClientDisconnected) {
		f.tb.Error(err)
	}
}

// took notes that work on a partition begins.
func (f *fleet) took(ctx context.Context, in *instance, i int) {
	token, _ := holdfast.TokenFrom(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[i]
	if last.in != nil && (last.ctx.Err() == nil && ctx.Err() == nil || token <= last.token) {
		f.twice++
	}
	if last.in != nil && last.in != in {
		f.moves++
	}
	f.last[i] = holding{ctx, in, token}
}

// moved returns the moves since the last call.
func (f *fleet) moved() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// kill cuts an instance off from the servers: nothing is released. What it was on its
// way to is of no interest any more.
func (f *fleet) kill(in *instance) {
	f.forget(in)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once: calls under way fail too
	_ = in.server.Disconnect(ctx)
}

// leave ends instances in order, all at a time.
func (f *fleet) leave(instances ...*instance) {
	f.tb.Helper()
	instances = slices.Clone(instances) // of f.live, perhaps
	for _, in := range instances {
		in.cancel()
	}
	for _, in := range instances {
		f.forget(in)
		if err := <-in.done; !errors.Is(err, context.Canceled) {
			f.tb.Error(err)
		}
	}
}

func (f *fleet) forget(in *instance) {
	f.live = slices.DeleteFunc(f.live, func(other *instance) bool { return other == in })
}

// least is how few moves make the fleet even after these have gone and others come.
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

// settle waits until the fleet is even, and all its work has begun, and returns how
// long that took.
func (f *fleet) settle(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.even() {
		if time.Since(begin) > most {
			f.tb.Fatalf("not even after %v: %v", most, f.shares())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

func (f *fleet) even() bool {
	owners := map[*instance]bool{}
	for _, in := range f.live {
		owners[in] = true
	}
	counts := map[*instance]int{}
	f.mu.Lock()
	for _, h := range f.last {
		if h.in == nil || h.ctx.Err() != nil || !owners[h.in] {
			f.mu.Unlock()
			return false
		}
		counts[h.in]++
	}
	f.mu.Unlock()
	for _, in := range f.live {
		if n := counts[in]; n < f.n/len(f.live) || n > (f.n+len(f.live)-1)/len(f.live) {
			return false
		}
	}
	return true
}

func (f *fleet) shares() string {
	var out []int
	for _, in := range f.live {
		out = append(out, len(in.Owned()))
	}
	return fmt.Sprint(out)
}

// check fails if a partition had two owners.
func (f *fleet) check() {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.twice != 0 {
		f.tb.Errorf("%d times a partition had two owners, or a token that did not rise", f.twice)
	}
}
