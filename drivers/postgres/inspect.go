package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Locker].
func (l *Locker) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = l.do(ctx, "inspect", name, driver.ValidateName(name, limits), func(ctx context.Context, c *pgx.Conn) error {
		r = driver.Record{Name: name, State: driver.StateFree}
		k, err := readLock(ctx, c, l.sql.inspect, toText(name))
		if l.noTable(err) {
			return c.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&r.ReadAt)
		}
		if err == nil && k.Lock != nil {
			r = k.RecordFor(name, "", k.now)
			r.History = k.PastHolders(l.config.history, k.now)
		}
		r.ReadAt = k.now.Wall
		if err == nil && l.config.onlyReads { // for people: requests may wait although the lock is free
			if all, unknown := l.blockers(ctx, c, name); unknown == nil {
				r.Blocked = describe(mattering(all, r.State == driver.StateHeld))
			}
		}
		return err
	})
	if err != nil {
		return driver.Record{}, err // a record that could not be read is not that of a free lock
	}
	return r, nil
}

// noTable reports whether there is no table for a Locker that makes none: all locks are free.
func (l *Locker) noTable(err error) bool {
	return l.config.onlyReads && hasCode(err, codeNoTable)
}

// result is a record that was read, or the name alone and why it could not be.
type result struct {
	record driver.Record
	err    error
}

// records reads records without data and history.
func (l *Locker) records(ctx context.Context, c *pgx.Conn, waiter, query string, args ...any) (all []result, err error) {
	rows, _ := c.Query(ctx, query, args...) // its error is also that of the rows
	var r row
	_, err = pgx.ForEachRow(rows, r.targets(), func() error {
		one := result{record: driver.Record{Name: fromText(r.name.String)}}
		k, err := r.read()
		if one.err = err; err == nil {
			one.record = k.RecordFor(one.record.Name, waiter, k.now)
		}
		all = append(all, one)
		return nil
	})
	if l.noTable(err) {
		err = nil
	}
	return all, err
}

// InspectBatch implements [driver.BatchInspector] with a statement for every 500 names.
func (l *Locker) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, leases := make([]driver.Record, len(names)), make([]driver.Lease, len(names))
	for i, name := range names {
		leases[i].Name = name
	}
	return records, l.batch(ctx, "inspect", leases, validateLease, func(ctx context.Context, c *pgx.Conn, b *batch) error {
		all, err := l.records(ctx, c, l.place(waiter), l.sql.inspectBatch, b.names)
		found := map[string]result{}
		for _, r := range all {
			found[r.record.Name] = r
		}
		for n, i := range b.part {
			r, there := found[names[i]]
			if records[i], b.errs[n] = r.record, r.err; !there {
				records[i] = driver.Record{Name: names[i], State: driver.StateFree}
			}
		}
		return err
	}, nil)
}
