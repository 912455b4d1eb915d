package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Locker] with one statement.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	return lease, l.doHolder(ctx, "renew", lease, validateRenewal(lease), func(ctx context.Context, c *pgx.Conn, sql *statements) error {
		k := keyOf(lease)
		found, err := stored(c.QueryRow(ctx, sql.renew, k.name, k.holder, lease.TTL.Milliseconds()))
		if err == nil && !found {
			err = driver.ErrLost
		}
		return err
	})
}

// RenewBatch implements [driver.BatchRenewer] with a statement for every 500 leases. Somebody's open transaction may have locked the
// row of one: the others are renewed without it, and a second statement is for those that the first has not found.
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) ([]driver.Lease, []error) {
	return leases, inTwo(leases, func(leases []driver.Lease, rest bool) []error {
		if rest {
			return l.renewBatch(ctx, leases, l.sql.renewRest)
		}
		return l.renewBatch(ctx, leases, l.sql.renewFree)
	})
}

func (l *Locker) renewBatch(ctx context.Context, leases []driver.Lease, statement string) []error {
	return l.batch(ctx, "renew", leases, validateRenewal, func(ctx context.Context, c *pgx.Conn, b *batch) error {
		rows, _ := c.Query(ctx, statement, b.names, b.holders, b.ttls) // its error is also that of the rows
		done := map[key]error{}
		var k key
		var kept bool
		_, err := pgx.ForEachRow(rows, []any{&k.name, &k.holder, &kept}, func() error {
			if done[k] = nil; !kept {
				done[k] = errNotStored
			}
			return nil
		})
		for i, name := range b.names {
			var there bool
			if b.errs[i], there = done[key{name, b.holders[i]}]; !there {
				b.errs[i] = driver.ErrLost
			}
		}
		return err
	}, func(ctx context.Context, lease driver.Lease) error {
		_, err := l.Renew(ctx, lease)
		return err
	})
}
