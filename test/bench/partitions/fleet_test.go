package partitions

import (
	"context"
	"errors"
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
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { serverprocess.Main(m) }

// fleet is a group of instances, each with a MongoDB client of its own. It records the owners of
// their partitions, and checks that no partition has two at once.
type fleet struct {
	tb    testing.TB
	n     int
	ttl   time.Duration
	uri   string
	names []string // database and collection
	live  []*instance

	exclusive *locktest.Exclusive

	mu     sync.Mutex
	owners []owner // the last owner of each partition
	moves  int
}

// owner is an instance's ownership of a partition.
type owner struct {
	ctx context.Context // ends with the ownership
	in  *instance
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
	return &fleet{tb: tb, n: n, ttl: ttl, uri: mongotest.URI(tb), names: []string{coll.Database().Name(), coll.Name()},
		exclusive: locktest.NewExclusive(tb), owners: make([]owner, n)}
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
	hold, _ := holdfast.HoldFromContext(ctx)
	f.exclusive.Enter(ctx, hold.Name(), hold.Token())
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.owners[i].in; last != nil && last != in {
		f.moves++
	}
	f.owners[i] = owner{ctx, in}
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
func (f *fleet) minMoves(gone []*instance, joining int) int {
	var left, stay []int
	for _, in := range f.live {
		if n := len(in.Owned()); slices.Contains(gone, in) {
			left = append(left, n)
		} else {
			stay = append(stay, n)
		}
	}
	return locktest.LeastMoves(f.n, left, stay, joining)
}

// waitEven waits until the partitions are evenly distributed and work on each has begun. It returns
// how long that took.
func (f *fleet) waitEven(limit time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !locktest.EvenShares(f.n, f.shares()) {
		if time.Since(begin) > limit {
			f.tb.Fatalf("not even after %v: %v at work", limit, f.shares())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// shares lists how many partitions each instance works on.
func (f *fleet) shares() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]int, len(f.live))
	for _, o := range f.owners {
		if k := slices.Index(f.live, o.in); k >= 0 && o.ctx.Err() == nil {
			out[k]++
		}
	}
	return out
}
