package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Partitions spreads n partitions of some work (the shards of a table, the topics of
// a feed) evenly over however many instances are alive. Each instance makes
// Partitions for the same group with the same n and calls Run; each partition is then
// at work in one of them at a time, under a lock with a fencing token of its own.
// All methods are safe for concurrent use.
//
// An instance that joins gets its share from the others, one that leaves releases its
// own, and the share of one that died is taken when its leases expire. Only the necessary
// partitions move: with 256 on 8 instances, a ninth is given 28 and nothing
// else moves. An instance returns the partitions that it took last first.
//
// # Newcomers and crashes
//
// If an instance dies without releasing its partitions, they are idle until their leases
// expire. So that an instance in a crash loop does not keep its share idle, a newcomer
// takes part only when it has lived for a while: WithRebalanceEvery's or WithRenewEvery's
// time, whichever is longer (10 s with the default settings). Until then the others
// do all the work. An instance takes part at once if no living member owns a partition, as
// when all instances start together. If it crashes later, its share is idle for at most one
// TTL. If all instances are replaced within that time, the new ones take part when the last
// of the old ones has left; some partitions are idle for that moment. To avoid it, replace instances
// more slowly than that.
//
// A member that is late with its renewal keeps its partitions while their leases last, but
// free partitions are no longer reserved for it. It is late after one and a half times
// WithRenewEvery's time, or half of its own TTL if that is longer, where the backend tells of
// renewals (Azure Blob Storage does not).
//
// # Records
//
// Partition 42 of the group "orders" is the lock "orders/partition-0042". An instance
// that takes part has one of n member locks besides, "orders/partition-member-0000"
// and so on; those that come when all are taken stand by. The owner of all these
// locks is the text of WithOwner, "#" and twelve digits that are different for every
// Run, which is how instances count who owns what. "orders/partition-bell" is taken
// and released by who joins, to wake the others; nothing depends on it.
//
// # Calls
//
// Nobody leads: every instance reads all 2n records now and then (WithRebalanceEvery),
// when another joins or frees something, where the backend can wake it, and when a lease of
// another's expires, and computes the same plan from them. A look is one call for every 1,000
// records where the backend has a BatchInspector, else one listing, else 2n calls, a few
// at a time. While nothing happens that is, with the default settings and besides the
// renewals, which are batched where the backend can:
//
//   - on MongoDB 10 to 15 commands a minute and instance, for up to 500 partitions;
//   - on Azure Blob Storage about 4 listings a minute and instance, each a request for every
//     5,000 blobs. They do not tell owners: those are asked for, with two reads each, when
//     something moves, and else every 3 minutes;
//   - on a file system the reading of a folder every 5 s.
type Partitions struct {
	client   *engine.Client
	group    string
	n        int
	fn       func(ctx context.Context, partition int) error
	settings partitionsSettings
	emit     func(event.Event)
	current  atomic.Pointer[sharing] // of the Run under way, or nil
}

// ErrReassigned is the cause of a partition's context when its instance owns more than
// its share: another waits for it.
var ErrReassigned = errors.New("holdfast: partition reassigned")

// maxPartitions bounds what everybody reads again and again.
const maxPartitions = 10_000

// New makes Partitions of a group, numbered from 0 to n-1, n at most
// 10,000. It does nothing until Run is called. All instances must give the same n:
// while they differ, each partition has one owner at a time as always, but some
// may have none.
//
// fn works on one partition: it is called on a goroutine of its own when the
// partition has come to this instance. Its context descends from Run's and ends
// when the partition is lost (the cause matches ErrLost) or given back
// ([ErrReassigned]), when Run's context ends, or at the client's Shutdown. fn must then
// stop; the lock is renewed until it has returned, and only then released, so that one
// slow function delays its own partition and no other. [holdfast.TokenFromContext] finds the
// partition's fencing token in the context, [holdfast.HoldFromContext] the hold.
//
//   - fn returns an error while the partition is still this instance's: the error
//     is told as an EventError, and fn is called again after a growing pause
//     (WithRestart; by default 1 s to 1 min).
//   - fn returns nil: there is nothing more to do here. The partition is kept, so that
//     no other instance begins with it, and its context lives, until it moves or is
//     lost. Where it comes to next, fn is called again.
//   - fn does not return after a loss: an EventOverrun reports it, and this instance does not
//     take the partition again before fn has returned. Another takes it when it has been free for twice
//     WithRebalanceEvery's time, even if that has its share already.
//   - fn panics: the program ends, as with any goroutine.
//
// Options are checked here, against the backend's limits; the error is an *[InvalidError].
func New(client *holdfast.Client, group string, n int, fn func(ctx context.Context, partition int) error, opts ...Option) (*Partitions, error) {
	switch {
	case client == nil:
		return nil, driver.Invalid("client", "nil", "a Client")
	case group == "":
		return nil, driver.Invalid("group", `""`, "the beginning of a name")
	case n < 1 || n > maxPartitions:
		return nil, driver.Invalid("n", fmt.Sprint(n), fmt.Sprintf("from 1 to %d", maxPartitions))
	case fn == nil:
		return nil, driver.Invalid("fn", "nil", "a function")
	}
	c := (*engine.Client)(client)
	if err := driver.ValidateName(memberName(group, n-1), c.Limits()); err != nil { // the longest
		return nil, err
	}
	cfg := settings.Partitions{Lock: c.Defaults(), Restart: defaultRestart}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "an Option")
		}
		o.ApplyPartitions(&cfg)
	}
	s, err := resolve(cfg, c.Limits())
	if err != nil {
		return nil, err
	}
	return &Partitions{client: c, group: group, n: n, fn: fn, settings: s, emit: c.EmitTo(s.Observers)}, nil
}

// Run takes part until ctx ends or the client shuts down. Then it leaves: the contexts
// of all functions end, this instance gives up its place among the members, and each
// partition is released as soon as its function has returned. When all have,
// Run returns an error that matches ctx's, or ErrClosed; never nil.
//
// A backend that fails ends nothing: each failure is told to the observers and
// retried. A second call during the first one returns an *[holdfast.InvalidError].
func (p *Partitions) Run(ctx context.Context) error {
	c := p.client
	if !c.Work().Start() { // Shutdown waits for it
		return cause.ErrShutdown
	}
	defer c.Work().Done()
	ctx, stop := cause.Join(ctx, c.Closing())
	defer stop()
	s := newSharing(ctx, p)
	if !p.current.CompareAndSwap(nil, s) {
		return fmt.Errorf("holdfast: partitions of %q: %w", p.group, driver.Invalid("call of Run", "during another one", "the only one"))
	}
	defer p.current.Store(nil)
	s.run()
	if c.Closing().Err() != nil {
		return cause.ErrShutdown
	}
	return fmt.Errorf("holdfast: partitions of %q: %w", p.group, cause.Of(ctx))
}

// Owned lists the partitions that are this instance's now, in order, without I/O. By the
// time it has returned, the answer can be out of date.
func (p *Partitions) Owned() []int {
	s := p.current.Load()
	if s == nil {
		return nil
	}
	var out []int
	for _, w := range s.live() {
		out = append(out, w.partition)
	}
	slices.Sort(out)
	return out
}
