// Package partitions spreads a fixed number of partitions of some work evenly over all live
// instances of a service: the shards of a table, the topics of a feed.
//
//	shards, err := partitions.New(client, "feed", 16, func(ctx context.Context, shard int) error {
//		token, _ := holdfast.TokenFromContext(ctx) // for what the results are written to
//		return consume(ctx, shard, token)          // until ctx ends
//	})
//	…
//	err = shards.Run(ctx) // until ctx ends or the client shuts down
//
// Every instance does the same. To hold a set of names that changes, or that are not shared evenly,
// see package leases.
package partitions

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Partitions is one instance of a group that shares n partitions. Each instance makes Partitions for
// the same group with the same n and calls Run. Each partition is then worked on by one instance at
// a time, under a lock with a fencing token of its own. All methods are safe for concurrent use.
//
// An instance that joins gets its share from the others. An instance that leaves releases its
// partitions. The partitions of an instance that died are acquired by others when its leases expire.
// Only the necessary partitions move: with 256 on 8 instances, a ninth gets 28 and nothing else
// moves. An instance returns first the partitions that it acquired last.
//
// # Newcomers and crashes
//
// If an instance dies without releasing its partitions, they are idle until their leases expire. So
// that an instance in a crash loop does not keep its share idle, a newcomer takes part only when it
// has lived for the time of [WithRebalanceEvery] or [holdfast.WithRenewEvery], whichever is longer:
// 10 s by default. Until then the others do all the work. An instance takes part at once if no live
// member owns a partition, as when all instances start together. If it crashes later, its share is
// idle for at most one TTL.
//
// If all instances are replaced within that time, the new ones take part when the last of the old
// ones has left, and some partitions are idle until then. To avoid it, replace instances more
// slowly.
//
// A member that is late with its renewal keeps its partitions while their leases last, but free
// partitions are no longer reserved for it. It is late after one and a half times the interval of
// [holdfast.WithRenewEvery], or half of its own TTL if that is longer. This needs a backend whose
// records show renewals; those of Azure Blob Storage do not.
//
// # Records
//
// Partition 42 of the group "orders" is the lock "orders/partition-0042". An instance that takes
// part also holds one of n member locks, "orders/partition-member-0000" and so on. Instances that
// find all of them taken stand by. The owner of all these locks is the text of
// [holdfast.WithOwner], "#" and twelve hexadecimal digits that differ for every Run; by them the
// instances count who owns how many. An instance that joins acquires and releases
// "orders/partition-notice" to wake the others; nothing else depends on that record.
//
// # Calls
//
// There is no leader. Every instance reads all 2n records and computes the same plan from them. It
// reads at the interval of [WithRebalanceEvery], when another instance joins or releases something
// (where the backend's Waker also wakes those without a position in a queue), and when another's lease
// expires. A read is one call for every 1,000 records where the backend has a BatchInspector, else one
// listing, else 2n calls, a few at a time. While nothing happens these are, with the default settings and besides the renewals:
//
//   - on MongoDB 10 to 15 commands a minute and instance, for up to 500 partitions;
//   - on Azure Blob Storage about 4 listings a minute and instance, with a request for every 5,000
//     blobs. A listing does not contain owners. Each is asked for with two reads, when something
//     moves and otherwise every 3 minutes;
//   - on a file system one read of the folder every 5 s.
type Partitions struct {
	client   *engine.Client
	group    string
	n        int
	fn       func(ctx context.Context, partition int) error
	settings partitionsSettings
	emit     func(event.Event)
	current  atomic.Pointer[run] // the call of Run under way, or nil
}

// ErrReassigned is the cause of a partition's context when the partition moves to another instance,
// because this one owns more than its share.
var ErrReassigned = driver.Errorf("partition reassigned")

// maxPartitions limits the records that every instance reads again and again.
const maxPartitions = 10_000

// New makes Partitions of a group, numbered from 0 to n-1; n is at most 10,000. It does nothing
// until Run is called. All instances must use the same n. While they differ, each partition still
// has at most one owner, but some may have none.
//
// fn works on one partition. It is called, on a goroutine of its own, when this instance has
// acquired the partition. Its context descends from Run's and ends
//
//   - when the lease is lost: the cause matches [holdfast.ErrLost];
//   - when the partition moves to another instance: the cause is [ErrReassigned];
//   - when Run's context ends;
//   - at the client's Shutdown: the cause matches [holdfast.ErrClosed].
//
// fn must then stop. The lock is renewed until fn has returned and released only then, so a slow
// function delays its own partition and no other. [holdfast.TokenFromContext] returns the
// partition's fencing token, [holdfast.HoldFromContext] its hold.
//
// What fn returns matters:
//
//   - An error while this instance owns the partition is reported as an EventError, and fn is called
//     again after a backoff; see [WithRestart]. So is [runtime.Goexit], on another goroutine.
//   - nil means that there is nothing more to do here. The partition is kept, and its context lives,
//     until it moves or is lost, so that no other instance begins with it. The next owner calls fn
//     again.
//   - If fn does not return after a loss, an EventOverrun reports it. This instance does not acquire
//     the partition again before fn has returned. Another does so when the partition has been free
//     for twice the time of [WithRebalanceEvery], even if that instance has its share already.
//   - A panic of fn ends the program, as on any goroutine.
//
// Options are checked here, against the backend's limits; the error is an *[holdfast.InvalidError].
func New(
	client *holdfast.Client, group string, n int, fn func(ctx context.Context, partition int) error, opts ...Option,
) (*Partitions, error) {
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
	c := bridge.Client(client)
	if err := driver.ValidateName(memberName(group, n-1), c.Info().Limits); err != nil { // the longest
		return nil, err
	}
	cfg := settings.Partitions{Lock: c.Defaults(), Restart: defaultRestart}
	if err := bridge.ApplyOptions[option](opts, &cfg, &cfg.Lock, "partitions"); err != nil {
		return nil, err
	}
	s, err := resolve(cfg, c.Info().Limits)
	if err != nil {
		return nil, err
	}
	return &Partitions{client: c, group: group, n: n, fn: fn, settings: s, emit: c.EmitTo(s.Observers)}, nil
}

// Run takes part until ctx ends or the client shuts down. Then the contexts of all functions end,
// this instance is no longer a member, and each partition is released as soon as its function has
// returned. When all are released, Run returns an error that matches ctx's error, or
// [holdfast.ErrClosed]; never nil.
//
// A failing backend does not end Run: each failure is reported to the observers and retried. A
// second call during the first one returns an *[holdfast.InvalidError].
func (p *Partitions) Run(ctx context.Context) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	c := p.client
	if !c.Work().Start() { // Shutdown waits for it
		return cause.ErrShutdown
	}
	defer c.Work().Done()
	ctx, stop := cause.Join(ctx, c.Closing())
	defer stop()
	r := newRun(ctx, stop, p)
	if !p.current.CompareAndSwap(nil, r) {
		return driver.Errorf("partitions of %q: %w", p.group, driver.Invalid("call", "during another one",
			"the only one of these Partitions"))
	}
	defer p.current.Store(nil)
	r.takePart()
	if c.Closing().Err() != nil {
		return cause.ErrShutdown
	}
	return driver.Errorf("partitions of %q: %w", p.group, cause.Of(ctx))
}

// Owned lists the partitions that are this instance's now, in order. It does no I/O. By the time it
// has returned, the answer can be out of date.
func (p *Partitions) Owned() []int {
	r := p.current.Load()
	if r == nil {
		return nil
	}
	var out []int
	for _, w := range r.live() {
		out = append(out, w.partition)
	}
	slices.Sort(out)
	return out
}
