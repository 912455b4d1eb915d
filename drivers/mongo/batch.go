package mongo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// renewChunkSize is the most leases that one command renews. It keeps the command's duration
// far below its time limit.
const renewChunkSize = 500

// parallelCommands is how many batch commands run at a time, so that one slow command does not
// delay all others.
const parallelCommands = 4

// parallelRenewals is how many leases are renewed one by one at a time, after a batch did not
// match them.
const parallelRenewals = 16

// RenewBatch implements [driver.BatchRenewer] with one updateMany for every 500 leases of the
// same TTL. The server does not retry updateMany, so after an error the outcome of every lease
// of its command is unknown.
//
// The commands of a large batch run one after another, so later leases are renewed later. That
// shortens no lease: the server counts from the moment of each command, and the caller counts
// from before the call.
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	groups := renewChunks(leases)
	notFound := make([][]int, len(groups))
	forEachParallel(parallelCommands, groups, func(n int, chunk []int) {
		notFound[n] = l.renewChunk(ctx, chunk, leases, errs)
	})
	// Renew gives each of these leases a definite answer. The time limit of one command
	// applies to all of them together, because the leases that were renewed wait for their
	// result.
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	forEachParallel(parallelRenewals, slices.Concat(notFound...), func(_, i int) {
		errs[i] = l.Renew(ctx, leases[i]) // Promise 4: only Renew's definite answer is a loss
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

// renewChunks groups leases by TTL; a chunk holds indexes. A lease gets a chunk of its own if
// it is invalid, has no ID, or repeats a name: a command reports how many documents it
// matched, not which.
func renewChunks(leases []driver.Lease) [][]int {
	var out [][]int
	withRoom := map[time.Duration]int{} // index in out of the TTL's chunk that has room
	seen := map[string]bool{}
	for i, lease := range leases {
		at, ok := withRoom[lease.TTL]
		switch {
		case leaseOp("", lease, true).invalid != nil || lease.ID.IsZero() || seen[lease.Name]:
			out = append(out, []int{i})
		case ok && len(out[at]) < renewChunkSize:
			out[at] = append(out[at], i)
		default:
			withRoom[lease.TTL] = len(out)
			out = append(out, []int{i})
		}
		seen[lease.Name] = true
	}
	return out
}

// renewChunk renews the leases of a chunk, stores errors, and returns the leases that do not
// seem to hold their locks.
func (l *Locker) renewChunk(ctx context.Context, chunk []int, leases []driver.Lease, errs []error) (lost []int) {
	if len(chunk) == 1 {
		errs[chunk[0]] = l.Renew(ctx, leases[chunk[0]])
		return nil
	}
	o := op{verb: "renew"}
	for _, i := range chunk {
		o.ids = append(o.ids, leases[i].ID.Reveal())
	}
	err := l.run(ctx, o, func(ctx context.Context) (err error) {
		lost, err = l.updateChunk(ctx, chunk, leases)
		return err
	})
	if err != nil {
		for _, i := range chunk {
			errs[i] = &driver.OpError{Op: "renew", Backend: backend, Name: leases[i].Name, Err: err}
		}
		return nil
	}
	return lost
}

// updateChunk renews the leases of a chunk and returns those that do not seem to hold their
// locks.
func (l *Locker) updateChunk(ctx context.Context, chunk []int, leases []driver.Lease) (lost []int, err error) {
	names, ids := make(list, len(chunk)), make(list, len(chunk))
	for n, i := range chunk {
		names[n], ids[n] = leases[i].Name, leases[i].ID.Reveal()
	}
	// Two lists also match one lease's name with another's ID. That cannot happen, since every
	// acquisition has its own ID (see [driver.Request]). Comparing pairs takes the server
	// twice as long.
	filter := validRecord(docOf("$in", names), field(fieldKid, docOf("$in", ids)), unbroken)
	res, err := l.majority.UpdateMany(ctx, filter, setFields(renewalFields(leases[chunk[0]].TTL.Milliseconds())...))
	if err != nil {
		return nil, err
	}
	if res.MatchedCount == int64(len(chunk)) {
		return nil, nil
	}
	holders, err := l.holders(ctx, names)
	if err != nil {
		return nil, err
	}
	held := 0
	for _, i := range chunk {
		if holders[leases[i].Name] == leases[i].ID.Reveal() {
			held++
		} else {
			lost = append(lost, i)
		}
	}
	// Leases can end between the two commands, but not begin.
	if int64(held) > res.MatchedCount {
		return nil, fmt.Errorf("%d leases were renewed, but %d are held: %w", res.MatchedCount, held, errInconsistent)
	}
	return lost, nil
}

// holders returns the lease IDs that may be renewed, by name. It reads the primary's latest
// data, which include the update that was acknowledged before, even on a new primary. Read
// concern "majority" is not enough: a new primary learns the majority's state late.
func (l *Locker) holders(ctx context.Context, names list) (map[string]string, error) {
	cursor, err := l.local.Find(ctx, validRecord(docOf("$in", names), field(fieldKid, docOf("$type", "string")), unbroken),
		options.Find().SetProjection(doc{field(fieldKid, 1)}))
	if err != nil {
		return nil, err
	}
	var found []struct {
		Name string `bson:"_id"`
		Kid  string `bson:"kid"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	holders := make(map[string]string, len(found))
	for _, r := range found {
		holders[r.Name] = r.Kid
	}
	return holders, nil
}
