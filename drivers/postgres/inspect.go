package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
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

// listPage is how many rows one statement lists.
const listPage = 1000

// afterPrefix ends the names with a prefix: no name has so many of the last character.
var afterPrefix = strings.Repeat("\U0010FFFF", 1024/4+1)

// List implements [driver.Lister] with a statement for every 1,000 rows.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var invalid error
		if !utf8.ValidString(prefix) {
			invalid = driver.Invalid("prefix", driver.Quote(prefix), "valid UTF-8")
		}
		for after, more := "", true; more; {
			var page []result
			err := l.do(ctx, "list", prefix, invalid, func(ctx context.Context, c *pgx.Conn) (err error) {
				page, err = l.records(ctx, c, "", l.sql.list, toText(after), toText(prefix), toText(prefix)+afterPrefix)
				return err
			})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, r := range page {
				if after = r.record.Name; !yield(r.record, opError("list", after, r.err)) {
					return
				}
			}
			more = len(page) == listPage
		}
	}
}

// Break implements [driver.Breaker].
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(k *lockstate.Lock, _ lockstate.Moment) bool { return k.Break() })
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(k *lockstate.Lock, now lockstate.Moment) bool {
		if !k.BreakNow(now) {
			return false
		}
		k.Expires = now.Elapsed
		return true
	})
}

func (l *Locker) breakLock(ctx context.Context, name string, target driver.BreakTarget,
	apply func(*lockstate.Lock, lockstate.Moment) bool) error {
	return l.do(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(ctx context.Context, c *pgx.Conn) error {
		k, err := readLock(ctx, c, l.sql.inspect, toText(name))
		if err != nil || k.Lock == nil {
			return err
		}
		k.Data = nil // it stays
		affects, err := k.Record(name, k.now).CheckTarget(target)
		if err != nil {
			return err
		}
		if !affects || !apply(k.Lock, k.now) { // the wait of an earlier break for a standby may have been cancelled
			_, err = c.Exec(ctx, confirmSQL)
			return err
		}
		if err := l.write(ctx, c, l.sql, toText(name), k); err != nil {
			return err
		}
		var calls wakeups
		if k.Holder == "" {
			calls.add(name, k.Lock, k.now)
		}
		l.wake(ctx, c, calls)
		return nil
	})
}

// ReadData implements [driver.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = l.do(ctx, "read data", name, driver.ValidateName(name, limits), func(ctx context.Context, c *pgx.Conn) error {
		k, err := readLock(ctx, c, l.sql.inspect, toText(name))
		if err != nil || k.Lock == nil {
			return err
		}
		if at = k.DataRevision(); len(k.Data) > 0 {
			data = k.Data
		}
		return nil
	})
	return data, at, err
}

// WriteData implements [driver.DataStore] with one statement, and one more that finds out why it wrote nothing.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	invalid := driver.ValidateWriteData(lease, data, limits)
	return l.do(ctx, "write data", lease.Name, invalid, func(ctx context.Context, c *pgx.Conn) error {
		key := keyOf(lease)
		found, err := stored(c.QueryRow(ctx, l.sql.writeData, key.name, key.holder, data, int64(at.Token), int64(at.Writes)))
		if err != nil || found {
			return err
		}
		switch k, err := readLock(ctx, c, l.sql.inspect, key.name); {
		case err != nil:
			return err
		case k.Lock == nil:
			return driver.ErrLost
		default:
			return cmp.Or(k.Write(key.holder, data, at, k.now), error(&unwritten{k.version}))
		}
	})
}

// MissingStore says which table does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (missing string, err error) {
	err = l.do(ctx, "look for the table", "", nil, func(ctx context.Context, c *pgx.Conn) error {
		f, err := lookUp(ctx, c, l.config.table)
		if err == nil && f.oid == 0 {
			missing = fmt.Sprintf("the table %s", l.config.table.quoted())
		}
		return err
	})
	return missing, err
}

// RemoveProbe implements [driver.Checker].
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.do(ctx, "remove", name, driver.ValidateName(name, limits), func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, l.sql.remove, toText(name))
		return err
	})
}
