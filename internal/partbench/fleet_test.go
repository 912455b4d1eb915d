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
	"github.com/holdfast-go/holdfast/partitions"
)

func TestMain(m *testing.M) { serverprocess.Main(m) }

// fleet is a group of instances, each with a MongoDB client of its own. It records the owners of
// their partitions.
type fleet struct {
	tb    testing.TB
	n     int
	ttl   time.Duration
	uri   string
	names []string // database and collection
	live  []*instance

	mu         sync.Mutex
	owners     []owner // the last owner of each partition
	moves      int
	violations int // a second owner at the same time, or a token that did not rise
}

// owner is an instance's ownership of a partition.
type owner struct {
	ctx   context.Context // ends with the ownership
	in    *instance
	token uint64
}

type instance struct {
	*partitions.Partitions
	server *mongodriver.Client
	client *holdfast.Client
	cancel context.CancelFunc
	done   chan error
	reads  atomic.Int64 // commands that read
	writes atomic.Int64 // commands that write, each of up to 500 renewals
}

func newFleet(tb testing.TB, n int, ttl time.Duration) *fleet {
	coll := mongotest.Collection(tb)
	return &fleet{tb: tb, n: n, ttl: ttl, uri: mongotest.URI(tb), names: []string{coll.Database().Name(), coll.Name()}, owners: make([]owner, n)}
}

// join starts instances at the same time.
func (f *fleet) join(count int) {
	f.tb.Helper()
	var joining sync.WaitGroup
	instances := make([]*instance, count)
	for i := range instances {
		joining.Go(func() { instances[i] = f.create() })
	}
	joining.Wait()
	for _, in := range instances {
		if in == nil {
			f.tb.Fatal("an instance did not start")
		}
		f.live = append(f.live, in)
		go func() { in.done <- in.Run(f.running(in)) }()
	}
}

// running returns the context in which an instance runs.
func (f *fleet) running(in *instance) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	in.cancel = cancel
	f.tb.Cleanup(cancel)
	return ctx
}

// create returns an instance that does not run yet, or nil after an error.
func (f *fleet) create() *instance {
	in := &instance{done: make(chan error, 1)}
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		switch e.CommandName {
		case "find":
			in.reads.Add(1)
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
	noLog := slog.New(slog.DiscardHandler)
	locker, err := mongo.New(ctx, in.server.Database(f.names[0]).Collection(f.names[1]), mongo.WithLogger(noLog))
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	if in.client, err = holdfast.New(locker, holdfast.WithTTL(f.ttl), holdfast.WithLogger(noLog)); err != nil {
		f.tb.Error(err)
		return nil
	}
	f.tb.Cleanup(func() { f.close(in) })
	in.Partitions, err = partitions.New(in.client, "bench", f.n, func(ctx context.Context, i int) error {
		f.recordOwner(ctx, in, i)
		<-ctx.Done()
		return nil
	})
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	return in
}

// close closes the clients of an instance.
func (f *fleet) close(in *instance) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := in.client.Shutdown(ctx); err != nil && slices.Contains(f.live, in) {
		f.tb.Error(err)
	}
	if err := in.server.Disconnect(ctx); err != nil && !errors.Is(err, mongodriver.ErrClientDisconnected) {
		f.tb.Error(err)
	}
}

// recordOwner records that an instance begins to work on a partition.
func (f *fleet) recordOwner(ctx context.Context, in *instance, i int) {
	token, _ := holdfast.TokenFromContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.owners[i]
	if last.in != nil && (last.ctx.Err() == nil && ctx.Err() == nil || token <= last.token) {
		f.violations++
	}
	if last.in != nil && last.in != in {
		f.moves++
	}
	f.owners[i] = owner{ctx, in, token}
}

// takeMoves returns the number of moves since the last call.
func (f *fleet) takeMoves() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// disconnect separates an instance from the servers, so that it releases nothing. It no longer
// belongs to the fleet.
func (f *fleet) disconnect(in *instance) {
	f.forget(in)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once, so that calls in progress fail too
	_ = in.server.Disconnect(ctx)
}

// leave stops instances in good order, all at the same time.
func (f *fleet) leave(instances ...*instance) {
	f.tb.Helper()
	instances = slices.Clone(instances) // they can be f.live, which forget changes
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

// minMoves returns the minimum number of moves to an even distribution after some instances have gone
// and others have joined.
func (f *fleet) minMoves(gone []*instance, joining int) (moves int) {
	m := len(f.live) - len(gone) + joining
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

// waitEven waits until the partitions are evenly distributed and work on each has begun. It returns
// how long that took.
func (f *fleet) waitEven(limit time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !f.even() {
		if time.Since(begin) > limit {
			f.tb.Fatalf("not even after %v: %v", limit, f.shares())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// even reports whether every partition has an owner and the owners' shares differ by at most one.
func (f *fleet) even() bool {
	counts := map[*instance]int{}
	f.mu.Lock()
	for _, o := range f.owners {
		if o.in == nil || o.ctx.Err() != nil || !slices.Contains(f.live, o.in) {
			f.mu.Unlock()
			return false
		}
		counts[o.in]++
	}
	f.mu.Unlock()
	for _, in := range f.live {
		if n := counts[in]; n < f.n/len(f.live) || n > (f.n+len(f.live)-1)/len(f.live) {
			return false
		}
	}
	return true
}

// shares lists how many partitions each instance owns.
func (f *fleet) shares() string {
	var out []int
	for _, in := range f.live {
		out = append(out, len(in.Owned()))
	}
	return fmt.Sprint(out)
}

// checkOwners fails the test if a partition had two owners.
func (f *fleet) checkOwners() {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.violations != 0 {
		f.tb.Errorf("%d times a partition had two owners, or a token that did not rise", f.violations)
	}
}
