package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// table is what an instance has read of a group: the records of its n partitions, followed by those
// of its n member locks. It belongs to one goroutine.
type table struct {
	client     *engine.Client
	prefix     string
	names      []string
	index      map[string]int // of each name; only where the records are listed
	rows       []row
	memory     time.Duration   // how long an owner is remembered that batched reads do not contain
	unchanged  bool            // nothing was moving after the last read
	unreadable engine.Failures // records that the last read could not read

	holds func(i int) (owner string, held bool) // whether this instance itself holds a lock
}

// row is one record as last read. It keeps only what is needed: an instance has a row for each
// partition of the group, however many instances share them.
type row struct {
	heldBy    string // the owner's text
	token     uint64
	ttl       time.Duration
	remaining time.Duration // of a held lock, if remainingKnown

	free      moment              // since when it is seen free
	holder    *sightings.Sighting // the last one seen, or nil
	unchanged time.Duration       // for how long, at least, the holder had not renewed at the last read
	askAgain  time.Duration       // when to ask again for an owner that was asked for
	refusals  int                 // of attempts in a row at a lock that was read as free
	tryAgain  time.Duration       // when to make the next one after them

	state          driver.State
	err            error // of the last read
	known          bool  // the last read returned it
	remainingKnown bool
	stuck          bool // not renewed for its whole TTL by our own clock
}

// partitionPrefix is the prefix of the names of a group's locks, and of no others.
func partitionPrefix(group string) string { return group + "/partition-" }

// partitionName is the lock of a partition. The digits make the names sort by number.
func partitionName(group string, i int) string {
	return fmt.Sprintf("%s%04d", partitionPrefix(group), i)
}

// memberName is a member lock.
func memberName(group string, i int) string {
	return fmt.Sprintf("%smember-%04d", partitionPrefix(group), i)
}

func newTable(c *engine.Client, group string, n int, memory time.Duration, holds func(int) (string, bool)) *table {
	t := &table{client: c, prefix: partitionPrefix(group), memory: memory, holds: holds, rows: make([]row, 2*n)}
	for i := range n {
		t.names = append(t.names, partitionName(group, i))
	}
	for i := range n {
		t.names = append(t.names, memberName(group, i))
	}
	return t
}

// read reads all records: in batches, by a listing, or one by one, whichever the backend has first.
// each limits the time of one call, all that of a listing. A record that cannot be read is unknown;
// if none can be read, the first error is returned.
func (t *table) read(ctx context.Context, each, all time.Duration) error {
	rows := make([]int, len(t.names))
	for i := range rows {
		rows[i] = i
	}
	switch a := t.client.Capabilities(); {
	case a.BatchInspector != nil:
		for batch := range slices.Chunk(rows, batchread.MaxNames) {
			for len(batch) > 0 {
				batch = t.readBatch(ctx, each, a.BatchInspector, batch)
			}
		}
	case a.Lister != nil:
		recs, errs, err := t.list(ctx, all, a.Lister)
		if err != nil {
			return err
		}
		t.update(ctx, each, rows, recs, errs)
	default:
		recs, errs := make([]driver.Record, len(rows)), make([]error, len(rows))
		t.readEach(ctx, each, rows, recs, errs, rows)
		t.update(ctx, each, rows, recs, errs)
	}
	t.unreadable = engine.Failures{}
	for i := range t.rows {
		if err := t.rows[i].err; err != nil {
			t.unreadable.Add(t.names[i], err)
		}
	}
	if len(t.unreadable.Names) == len(t.names) {
		return t.unreadable.First
	}
	return nil
}

// readBatch reads the records of rows in one call, and returns the rows to ask for again. A driver whose store does not read in
// batches (S3) makes a request for each name, and the last ones of a call may never have the time: so the rest is asked for again
// while each call brings some.
func (t *table) readBatch(ctx context.Context, each time.Duration, inspector driver.BatchInspector, rows []int) (rest []int) {
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = t.names[row]
	}
	limited, cancel := context.WithTimeout(ctx, each)
	recs, errs := batchread.Inspect(limited, inspector, "", names)
	cancel()
	for i, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) {
			rest = append(rest, rows[i])
		}
	}
	t.update(ctx, each, rows, recs, errs)
	if len(rest) == len(rows) {
		return nil
	}
	return rest
}

// list reads all records by a listing. An error means that some are missing.
func (t *table) list(ctx context.Context, limit time.Duration, lister driver.Lister) ([]driver.Record, []error, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if t.index == nil {
		t.index = make(map[string]int, len(t.names))
		for i, name := range t.names {
			t.index[name] = i
		}
	}
	recs, errs := make([]driver.Record, len(t.names)), make([]error, len(t.names))
	for i, name := range t.names { // a name that is not listed has no record
		recs[i] = driver.Record{Name: name, State: driver.StateFree}
	}
	for r, err := range lister.List(limited, t.prefix) {
		if err != nil && r.Name == "" { // the rest is missing
			return nil, nil, err
		}
		if i, ours := t.index[r.Name]; ours {
			recs[i], errs[i] = r, err
		}
	}
	return recs, errs, nil
}

// update puts what was read into these rows.
func (t *table) update(ctx context.Context, each time.Duration, rows []int, recs []driver.Record, errs []error) {
	t.addOwners(ctx, each, rows, recs, errs)
	now := t.client.Now() // after the replies, so that what was read is older
	for i, row := range rows {
		t.rows[row].update(t.names[row], recs[i], errs[i], t.client.Sightings(), now)
	}
}

// readEach reads single records, a few at a time: those of which of the rows.
func (t *table) readEach(ctx context.Context, each time.Duration, rows []int, recs []driver.Record, errs []error, which []int) {
	forEach(which, func(i int) bool {
		limited, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		recs[i], errs[i] = t.client.Inspect(limited, t.names[rows[i]]) // measured
		return true
	})
}

// addOwners asks for the owners that a batched read did not contain (Azure Blob Storage), with a
// call for each. An owner is remembered while its lock is held under the same token. Where the read
// does not contain tokens either, the owner is remembered for a while if nothing is moving.
func (t *table) addOwners(ctx context.Context, each time.Duration, rows []int, recs []driver.Record, errs []error) {
	var unknown []int
	now := t.client.Now()
	for i := range recs {
		rec, row := &recs[i], &t.rows[rows[i]]
		if errs[i] != nil || rec.State != driver.StateHeld || rec.Owner != "" {
			continue
		}
		if owner, ok := t.holds(rows[i]); ok {
			rec.Owner = owner
			continue
		}
		same := rec.Token == row.token
		if rec.Token == 0 {
			same = t.unchanged && now < row.askAgain
		}
		if same && row.state == driver.StateHeld {
			rec.Owner, rec.Token = row.heldBy, row.token
		}
		if rec.Owner == "" {
			unknown = append(unknown, i)
			row.askAgain = now + timing.Jitter(t.memory, 0.2)
		}
	}
	t.readEach(ctx, each, rows, recs, errs, unknown)
}

// update records what was read; memory has the client's sightings of holders.
func (r *row) update(name string, rec driver.Record, err error, memory *sightings.Memory, now time.Duration) {
	if rec.State == driver.StateHeld {
		r.refusals, r.tryAgain = 0, 0
	}
	r.err, r.known = err, err == nil && rec.State != driver.StateUnknown && now >= r.tryAgain
	if !r.known {
		return
	}
	r.state, r.heldBy, r.token, r.ttl = rec.State, rec.Owner, rec.Token, rec.TTL
	r.remaining, r.remainingKnown = rec.Remaining, rec.RemainingKnown
	r.stuck, r.unchanged = false, 0
	if rec.State == driver.StateHeld {
		r.holder = memory.See(name, rec, r.holder)
		r.stuck, r.unchanged = !memory.Stuck(r.holder).IsZero(), memory.Unchanged(r.holder)
	}
	if r.free.setOnce(now); r.owner() != plan.Nobody {
		r.free.set = false
	}
}

// refuse notes that another holds a lock, although it was read as free: it may be held in a way that no record shows, as the old
// lock of package migrating. So it is unknown until the backoff is over, or a read shows it held.
func (r *row) refuse(now, first, most time.Duration) {
	if r.state == driver.StateFree {
		r.known, r.tryAgain = false, now+timing.Backoff(r.refusals, first, most)
		r.refusals++
	}
}

// owner returns the owner in the record, plan.Nobody or plan.Unknown.
func (r *row) owner() string {
	switch {
	case !r.known:
		return plan.Unknown
	case r.state == driver.StateFree || r.stuck: // Promise 10: a holder that does not renew does not keep a partition, whatever its expiry.
		return plan.Nobody
	case r.heldBy == "":
		return plan.Unknown
	}
	return r.heldBy
}

// sinceRenewal returns for how long, at least, a held lock has not been renewed: by the rest of its
// time, and by how long its revision has been the same.
func (r *row) sinceRenewal() time.Duration {
	switch {
	case !r.known || r.state != driver.StateHeld:
		return 0
	case r.remainingKnown:
		return max(r.unchanged, r.ttl-r.remaining)
	}
	return r.unchanged
}

// expiresIn returns when a held lock expires unless it is renewed, if that is known.
func (r *row) expiresIn() (time.Duration, bool) {
	if !r.known || r.state != driver.StateHeld || r.stuck || !r.remainingKnown {
		return 0, false
	}
	return max(r.remaining, 0), true
}

// acquire makes one attempt at the lock of a row, for a hold whose context descends from ctx.
func (t *table) acquire(ctx context.Context, i int, s settings.Settings, emit func(event.Event)) (h *engine.Hold, err error) {
	a := t.client.NewAcquisition(t.names[i], s, emit)
	defer func() {
		if h == nil { // also after a panic of the driver that Run's caller recovers
			a.Abandon()
		}
	}()
	return t.client.TryAcquire(ctx, ctx, a, true)
}

// heldByAnother reports whether an attempt failed only because another instance holds the lock.
func heldByAnother(err error) bool { return errors.Is(err, driver.ErrHeld) }
