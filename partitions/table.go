package partitions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/plan"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
)

// table is what an instance has read of a group: the records of n partitions, and
// after them those of n members. It belongs to one goroutine.
type table struct {
	client *engine.Client
	prefix string
	names  []string
	all    []int          // their indexes
	index  map[string]int // by name
	rows   []row
	memory time.Duration   // how long an owner is remembered that reads do not tell
	calm   bool            // nothing was moving at the last look
	unread engine.Failures // records that the last look could not read, if it read any

	own func(i int) (owner string, own bool) // whether this instance itself holds a record
}

// row is one record as last read.
type row struct {
	rec   driver.Record
	known bool   // false: the last look did not tell
	free  moment // since when it is seen free
	stuck bool   // not renewed for its whole TTL by our own clock: it is over

	holder    *sightings.Sighting // the last one seen, or nil
	unchanged time.Duration       // for how long, at least, a holder had not renewed when it was read

	askAgain time.Duration // when an owner that had to be asked for is no longer believed
}

// partitionPrefix begins the names of all records of a group, and of no others.
func partitionPrefix(group string) string { return group + "/partition-" }

// partitionName is the lock of a partition. The digits make the names sort by number.
func partitionName(group string, i int) string {
	return fmt.Sprintf("%s%04d", partitionPrefix(group), i)
}

// memberName is the lock of a place among the members.
func memberName(group string, slot int) string {
	return fmt.Sprintf("%smember-%04d", partitionPrefix(group), slot)
}

func newTable(c *engine.Client, group string, n int, memory time.Duration, own func(int) (string, bool)) *table {
	t := &table{client: c, prefix: partitionPrefix(group), memory: memory, own: own, index: make(map[string]int, 2*n), rows: make([]row, 2*n)}
	for i := range n {
		t.names = append(t.names, partitionName(group, i))
	}
	for i := range n {
		t.names = append(t.names, memberName(group, i))
	}
	for i, name := range t.names {
		t.all, t.index[name] = append(t.all, i), i
	}
	return t
}

// look reads all records: with a batched read where there is one, by a listing, or
// one by one. It fails if nothing could be read; a record that could not is unknown.
func (t *table) look(ctx context.Context, each, all time.Duration) error {
	recs := make([]driver.Record, len(t.names))
	errs := make([]error, len(t.names))
	switch a := t.client.Capabilities(); {
	case a.BatchInspector != nil:
		for from := 0; from < len(t.names); from += batchread.MaxNames {
			to := min(from+batchread.MaxNames, len(t.names))
			limited, cancel := context.WithTimeout(ctx, each)
			r, e := batchread.Inspect(limited, a.BatchInspector, t.names[from:to])
			cancel()
			copy(recs[from:to], r)
			copy(errs[from:to], e)
		}
	case a.Lister != nil:
		limited, cancel := context.WithTimeout(ctx, all)
		defer cancel()
		for i, name := range t.names { // what is not listed has no record
			recs[i] = driver.Record{Name: name, State: driver.StateFree}
		}
		for r, err := range a.Lister.List(limited, t.prefix) {
			if err != nil && r.Name == "" { // the rest is missing
				return err
			}
			if i, ours := t.index[r.Name]; ours {
				recs[i], errs[i] = r, err
			}
		}
	default:
		t.inspect(ctx, each, recs, errs, t.all)
	}
	t.identify(ctx, each, recs, errs)
	now := t.client.Now() // after the reply: whatever was read was renewed before
	t.unread = engine.Failures{}
	for i, name := range t.names {
		if errs[i] != nil {
			t.unread.Add(name, errs[i])
		}
		t.rows[i].see(name, recs[i], errs[i], t.client.Sightings(), now)
	}
	if len(t.unread.Names) == len(t.names) {
		return t.unread.First
	}
	return nil
}

// inspect reads single records, a few at a time.
func (t *table) inspect(ctx context.Context, each time.Duration, recs []driver.Record, errs []error, which []int) {
	var calls sync.WaitGroup
	var next counter
	for range min(partitionCalls, len(which)) {
		calls.Go(func() {
			for k := next.take(); k < len(which); k = next.take() {
				i := which[k]
				limited, cancel := context.WithTimeout(ctx, each)
				recs[i], errs[i] = t.client.Locker().Inspect(limited, t.names[i])
				cancel()
			}
		})
	}
	calls.Wait()
}

// identify finds out the owners that a batched read did not tell (Azure Blob Storage),
// with a call for each. An owner is remembered while its lock is seen held under the same
// token, or, where the read tells no tokens either, for a while if nothing is moving.
func (t *table) identify(ctx context.Context, each time.Duration, recs []driver.Record, errs []error) {
	var unknown []int
	now := t.client.Now()
	for i := range recs {
		rec, row := &recs[i], &t.rows[i]
		if errs[i] != nil || rec.State != driver.StateHeld || rec.Owner != "" {
			continue
		}
		if owner, ok := t.own(i); ok {
			rec.Owner = owner
			continue
		}
		same := rec.Token == row.rec.Token
		if rec.Token == 0 {
			same = t.calm && now < row.askAgain
		}
		if same && row.rec.State == driver.StateHeld {
			rec.Owner, rec.Token = row.rec.Owner, row.rec.Token
		}
		if rec.Owner == "" {
			unknown = append(unknown, i)
			row.askAgain = now + clock.Jitter(t.memory, 0.2)
		}
	}
	t.inspect(ctx, each, recs, errs, unknown)
}

// see takes in what was read of a record; memory is what the client remembers of holders.
func (r *row) see(name string, rec driver.Record, err error, memory *sightings.Memory, now time.Duration) {
	r.known = err == nil && rec.State != driver.StateUnknown
	if !r.known {
		return
	}
	r.rec, r.stuck, r.unchanged = rec, false, 0
	if rec.State == driver.StateHeld {
		r.holder = memory.See(name, rec, r.holder)
		r.stuck, r.unchanged = !memory.Stuck(r.holder).IsZero(), memory.Unchanged(r.holder)
	}
	if r.free.first(now); r.owner() != plan.Nobody {
		r.free.set = false
	}
}

// owner tells whose it is: nobody's, a stranger's if that is all that is known, or the
// instance's that the record names.
func (r *row) owner() string {
	switch {
	case !r.known:
		return plan.Stranger
	case r.rec.State == driver.StateFree || r.stuck:
		return plan.Nobody
	case r.rec.Owner == "":
		return plan.Stranger
	}
	return r.rec.Owner
}

// notRenewed tells how long ago a held record was renewed, at least: by what is left of
// its time, and by how long its revision has been the same.
func (r *row) notRenewed() time.Duration {
	switch {
	case !r.known || r.rec.State != driver.StateHeld:
		return 0
	case r.rec.RemainingKnown:
		return max(r.unchanged, r.rec.TTL-r.rec.Remaining)
	}
	return r.unchanged
}

// endsIn tells when a held record's time ends unless it is renewed.
func (r *row) endsIn() (time.Duration, bool) {
	if !r.known || r.rec.State != driver.StateHeld || r.stuck || !r.rec.RemainingKnown {
		return 0, false
	}
	return max(r.rec.Remaining, 0), true
}

// take makes one attempt at the lock of a row, for a hold whose context descends from
// ctx.
func (t *table) take(ctx context.Context, i int, s settings.Settings, emit func(event.Event)) (*engine.Hold, error) {
	a := t.client.NewAcquisition(t.names[i], s, emit)
	h, err := t.client.TryAcquire(ctx, ctx, a, true)
	if err != nil {
		a.Abandon()
	}
	return h, err
}

// refused tells whether an attempt failed only because another was there first.
func refused(err error) bool { return errors.Is(err, driver.ErrHeld) }
