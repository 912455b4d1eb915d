package mongo

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// batchChunkSize is the most leases that one command renews or releases. It keeps the command's
// duration far below its time limit.
const batchChunkSize = 500

// parallelCommands is how many batch commands run at a time, so that one slow command does not
// delay all others.
const parallelCommands = 4

// parallelSingles is how many leases are renewed or released one by one at a time, after a batch
// did not match them.
const parallelSingles = 16

// batchCall renews or releases many leases.
type batchCall struct {
	verb   string
	chunks [][]int // of indexes of leases; one command for each
	single func(context.Context, driver.Lease) error
	// many sends the command of a chunk, and returns the leases whose answer is not definite.
	many func(ctx context.Context, chunk []int, leases []driver.Lease) (doubtful []int, err error)
}

func (l *Locker) inBatches(ctx context.Context, leases []driver.Lease, c batchCall) []error {
	errs := make([]error, len(leases))
	doubtful := make([][]int, len(c.chunks))
	forEachParallel(parallelCommands, c.chunks, func(n int, chunk []int) {
		doubtful[n] = l.sendChunk(ctx, c, chunk, leases, errs)
	})
	// A call for each of these leases gives it a definite answer. The time limit of one command
	// applies to all of them together, because the other leases wait for their result.
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	forEachParallel(parallelSingles, slices.Concat(doubtful...), func(_, i int) {
		errs[i] = c.single(ctx, leases[i])
	})
	return errs
}

// forEachParallel calls do for every item and its index, at most limit at a time.
func forEachParallel[T any](limit int, items []T, do func(n int, item T)) {
	running := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for n, item := range items {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			do(n, item)
		})
	}
	wg.Wait()
}

// batchChunks groups leases, by their mode and, for a renewal, by TTL; a chunk holds indexes. A lease gets a chunk of
// its own if it is invalid, has no ID, or repeats a name: a command reports how many documents it
// matched, not which. Of a name that is shared there may be many leases: the answer is read in any case.
func batchChunks(leases []driver.Lease, renewal bool) [][]int {
	var out [][]int
	type kind struct {
		ttl  time.Duration
		mode driver.Mode
	}
	withRoom := map[kind]int{} // index in out of the chunk that has room
	seen := map[string]bool{}
	for i, lease := range leases {
		like := kind{lease.TTL, lease.Mode}
		if !renewal {
			like.ttl = 0
		}
		at, ok := withRoom[like]
		switch repeats := seen[lease.Name] && lease.Mode != driver.Shared; {
		case leaseOp("", lease, renewal).invalid != nil || lease.ID.IsZero() || repeats:
			out = append(out, []int{i})
		case ok && len(out[at]) < batchChunkSize:
			out[at] = append(out[at], i)
		default:
			withRoom[like] = len(out)
			out = append(out, []int{i})
		}
		seen[lease.Name] = true
	}
	return out
}

// sendChunk sends the command of a chunk, stores errors, and returns the leases whose answer is not
// definite.
func (l *Locker) sendChunk(ctx context.Context, c batchCall, chunk []int, leases []driver.Lease, errs []error) (doubtful []int) {
	if len(chunk) == 1 {
		errs[chunk[0]] = c.single(ctx, leases[chunk[0]])
		return nil
	}
	o := op{verb: c.verb}
	for _, i := range chunk {
		o.ids = append(o.ids, leases[i].ID.Reveal())
	}
	err := l.run(ctx, o, func(ctx context.Context) (err error) {
		doubtful, err = c.many(ctx, chunk, leases)
		return err
	})
	if err != nil {
		for _, i := range chunk {
			errs[i] = &driver.OpError{Op: c.verb, Backend: backend, Name: leases[i].Name, Err: err}
		}
		return nil
	}
	return doubtful
}

// namesAndIDs are the leases of a chunk, and pairs both of each.
func namesAndIDs(chunk []int, leases []driver.Lease) (names, ids, pairs list) {
	for _, i := range chunk {
		name, id := leases[i].Name, leases[i].ID.Reveal()
		names, ids, pairs = append(names, name), append(ids, id), append(pairs, list{name, id})
	}
	return names, ids, pairs
}

// latest reads fields of documents from the primary's latest data.
func (l *Locker) latest(ctx context.Context, filter, projection any) ([]bson.Raw, error) {
	return findAll(ctx, l.local, filter, options.Find().SetProjection(projection))
}
