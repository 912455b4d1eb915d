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

// batchChunk is the most leases that one command renews, so that it stays
// short beside the time limit of a command.
const batchChunk = 500

// batchParallel is how many of them may be under way, so that one that hangs
// does not hold up the others at once.
const batchParallel = 4

// lookParallel is how many of the leases that a batch did not find are looked at
// at a time.
const lookParallel = 16

// RenewBatch implements [driver.BatchRenewer] with one updateMany for every
// 500 leases of the same TTL. updateMany cannot be retried by itself, so after
// an error every lease of its command is in doubt.
//
// Each command takes its time, so the leases of a later one are renewed later.
// Nothing here shortens a lease: the server counts from the moment of the
// command, and a caller that counts from before the call is on the safe side.
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	groups := chunks(leases)
	unfound := make([][]int, len(groups))
	each(batchParallel, groups, func(n int, chunk []int) {
		unfound[n] = l.renewChunk(ctx, chunk, leases, errs)
	})
	// Each is looked at by itself, in the time of one command altogether: the
	// leases that were renewed must not wait long for their answer.
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	each(lookParallel, slices.Concat(unfound...), func(_, i int) {
		errs[i] = l.Renew(ctx, leases[i]) // it says for certain
	})
	return errs
}

// each calls do for all items and their indexes, for so many at a time.
func each[T any](most int, items []T, do func(n int, item T)) {
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for n, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(n, item)
		})
	}
	wg.Wait()
}

// chunks groups leases by TTL; a chunk holds indexes. An invalid lease goes
// alone, and so does one without an ID or a further lease of a name: a command tells how many
// documents it matched, not for whom.
func chunks(leases []driver.Lease) [][]int {
	var out [][]int
	open := map[time.Duration]int{} // where in out the open chunk of a TTL is
	seen := map[string]bool{}
	for i, lease := range leases {
		at, ok := open[lease.TTL]
		switch {
		case leaseOp("", lease, true).invalid != nil || lease.ID.IsZero() || seen[lease.Name]:
			out = append(out, []int{i})
		case ok && len(out[at]) < batchChunk:
			out[at] = append(out[at], i)
		default:
			open[lease.TTL] = len(out)
			out = append(out, []int{i})
		}
		seen[lease.Name] = true
	}
	return out
}

// renewChunk renews the leases of a chunk, notes errors, and returns the leases
// that do not seem to hold their locks.
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

// updateChunk renews the leases of a chunk and returns those that do not seem
// to hold their locks.
func (l *Locker) updateChunk(ctx context.Context, chunk []int, leases []driver.Lease) (lost []int, err error) {
	names, ids := make(list, len(chunk)), make(list, len(chunk))
	for n, i := range chunk {
		names[n], ids[n] = leases[i].Name, leases[i].ID.Reveal()
	}
	// Two lists match any mixture of two leases. There is none, since every
	// acquisition has an ID of its own: so [driver.Request] has it. Comparing the
	// pairs takes the server twice as long.
	filter := proper(is("$in", names), field(fieldKid, is("$in", ids)), unbroken)
	res, err := l.writes.UpdateMany(ctx, filter, set(extension(leases[chunk[0]].TTL.Milliseconds())...))
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
	// Fewer may be held by now, never more.
	if int64(held) > res.MatchedCount {
		return nil, fmt.Errorf("%d leases were renewed and %d are held: %w", res.MatchedCount, held, errMoved)
	}
	return lost, nil
}

// holders returns the IDs that may renew, by name. It reads the primary's
// latest data, which includes all that the write before it was acknowledged
// with, even on the next primary. What a majority is known to have would not do:
// a new primary learns that late.
func (l *Locker) holders(ctx context.Context, names list) (map[string]string, error) {
	cursor, err := l.latest.Find(ctx, proper(is("$in", names), field(fieldKid, is("$type", "string")), unbroken),
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
