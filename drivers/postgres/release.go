package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Locker] with one statement, and one more that wakes waiters. If it finds no lease, there are two more.
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	invalid := driver.ValidateName(lease.Name, limits)
	return l.doHolder(ctx, "release", lease, invalid, func(ctx context.Context, c *pgx.Conn, sql *statements) error {
		k := keyOf(lease)
		rows, _ := c.Query(ctx, sql.release, k.name, k.holder) // its error is also that of the rows
		return l.released(ctx, c, rows, []string{k.name})
	})
}

// ReleaseBatch implements [driver.BatchReleaser] with a statement for every 500 leases, and one more that wakes waiters. As in
// RenewBatch, a second one is for those that the first has not found.
func (l *Locker) ReleaseBatch(ctx context.Context, leases []driver.Lease) []error {
	return inTwo(leases, func(leases []driver.Lease, rest bool) []error {
		return l.batch(ctx, "release", leases, validateLease, func(ctx context.Context, c *pgx.Conn, b *batch) error {
			if rest {
				rows, _ := c.Query(ctx, l.sql.releaseRest, b.names, b.holders, b.ttls)
				return l.released(ctx, c, rows, b.names)
			}
			var calls wakeups
			rows, _ := c.Query(ctx, l.sql.releaseFree, b.names, b.holders, b.ttls)
			found, err := calls.collect(rows)
			if err != nil {
				return err
			}
			l.wake(ctx, c, calls)
			for n, name := range b.names {
				if !found[name] {
					b.errs[n] = driver.ErrLost // of which the rest knows more
				}
			}
			return nil
		}, l.Release)
	})
}

// released wakes the waiters of locks that were released. rows are the locks that a statement has released. If it did not
// find a lease, the answer of an earlier release may have been lost, and with it the waiters to wake, or its wait for a standby was
// cancelled. Promise 10: such a release is certain before this one reports success.
func (l *Locker) released(ctx context.Context, c *pgx.Conn, rows pgx.Rows, names []string) error {
	var calls wakeups
	found, err := calls.collect(rows)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
	if len(missing) > 0 {
		rows, _ := c.Query(ctx, l.sql.waitingOn, missing)
		_, _ = calls.collect(rows) // the leases hold nothing; waiters poll, too
	}
	l.wake(ctx, c, calls)
	if len(missing) > 0 {
		_, err = c.Exec(ctx, confirmSQL)
	}
	return err
}
