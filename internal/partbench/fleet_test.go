package partbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/partitions"
)

func TestMain(m *testing.M) {
	code := azuritetest.Run(withMongo{m})
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "partbench:", err)
		code = 1
	}
	os.Exit(code)
}

// withMongo stops MongoDB, too, when the tests are done.
type withMongo struct{ *testing.M }

func (m withMongo) Run() int { return mongotest.Run(m.M) }

// fleet is a group of instances, each with a MongoDB client of its own. It checks that no partition
// has two owners, and counts how often partitions move.
type fleet struct {
	tb    testing.TB
	n     int
	ttl   time.Duration
	uri   string
	names []string // database and collection
	live  []*instance

	exclusive *locktest.Exclusive

	mu    sync.Mutex
	last  []ownership // of each partition
	moves int
}

// ownership is the last work on a partition.
type ownership struct {
	ctx context.Context
	in  *instance
}

type instance struct {
	*partitions.Partitions
	server *mongodriver.Client
	client *holdfast.Client
	cancel context.CancelFunc
	done   chan error
	finds  atomic.Int64 // commands that read
	writes atomic.Int64 // commands that write, each of up to 500 renewals
}

func newFleet(tb testing.TB, n int, ttl time.Duration) *fleet {
	coll := mongotest.Collection(tb)
	return &fleet{tb: tb, n: n, ttl: ttl, uri: mongotest.URI(tb), names: []string{coll.Database().Name(), coll.Name()}, exclusive: locktest.NewExclusive(tb), last: make([]ownership, n)}
}

// join starts so many instances.
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
	in.Partitions, err = partitions.New(in.client, "bench", f.n, func(ctx context.Context, i int) error {
		f.begun(ctx, in, i)
		<-ctx.Done()
		return nil
	})
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	return in
}

// stop ends an instance that may have been ended before.
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

// begun records that work on a partition begins.
func (f *fleet) begun(ctx context.Context, in *instance, i int) {
	hold, _ := holdfast.HoldFromContext(ctx)
	f.exclusive.Enter(ctx, hold.Name(), hold.Token())
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.last[i].in; last != nil && last != in {
		f.moves++
	}
	f.last[i] = ownership{ctx, in}
}

// takeMoves returns the moves since its last call.
func (f *fleet) takeMoves() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.moves
	f.moves = 0
	return n
}

// kill cuts an instance off from the servers: nothing is released.
func (f *fleet) kill(in *instance) {
	f.forget(in)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once: calls under way fail too
	_ = in.server.Disconnect(ctx)
}

// leave ends instances in order, all at once.
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

// leastMoves returns how few moves make the fleet even after these instances have left and so many
// have joined.
func (f *fleet) leastMoves(leaving []*instance, joining int) int {
	var left, stay []int
	for _, in := range f.live {
		if n := len(in.Owned()); slices.Contains(leaving, in) {
			left = append(left, n)
		} else {
			stay = append(stay, n)
		}
	}
	return locktest.LeastMoves(f.n, left, stay, joining)
}

// untilEven waits until the fleet is even and work has begun on every partition, and returns how
// long that took.
func (f *fleet) untilEven(most time.Duration) time.Duration {
	f.tb.Helper()
	begin := time.Now()
	for !locktest.EvenShares(f.n, f.shares()) {
		if time.Since(begin) > most {
			f.tb.Fatalf("not even after %v: %v at work", most, f.shares())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// shares lists how many partitions each live instance works on.
func (f *fleet) shares() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]int, len(f.live))
	for _, last := range f.last {
		if k := slices.Index(f.live, last.in); k >= 0 && last.ctx.Err() == nil {
			out[k]++
		}
	}
	return out
}
