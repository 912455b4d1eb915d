package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// batchSize is how many leases one statement renews or releases at most.
const batchSize = 500

// key is what a lease has in the table.
type key struct{ name, holder string }

func keyOf(lease driver.Lease) key { return key{toText(lease.Name), lockrecord.Digest(lease.ID)} }

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

// doHolder is do for a holder's write. Somebody's open transaction can have locked the row: as with acquires, many such calls must not
// keep the Locker's connections from those for other locks.
func (l *Locker) doHolder(ctx context.Context, op string, lease driver.Lease, invalid error,
	work func(context.Context, *pgx.Conn, *statements) error) error {
	first := l.sql.quick
	if l.slots.patient == nil { // nobody may be patient later
		first = l.sql
	}
	err := l.call(ctx, invalid, func(ctx context.Context, c *pgx.Conn) error { return work(ctx, c, first) })
	if hasCode(err, codeLockTimeout) {
		if free, ok := l.patientSlot(ctx); ok {
			err = l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) error { return work(ctx, c, l.sql) })
			free()
		}
	}
	return opError(op, lease.Name, l.withBlockers(ctx, lease.Name, err))
}

func validateLease(lease driver.Lease) error { return driver.ValidateName(lease.Name, limits) }

func validateRenewal(lease driver.Lease) error { return driver.ValidateRenew(lease, limits) }

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

// inTwo does a batch in two parts: first the leases whose rows nobody has locked, then those that were not found so.
func inTwo(leases []driver.Lease, part func(leases []driver.Lease, rest bool) []error) []error {
	errs := part(leases, false)
	var rest []driver.Lease
	var at []int
	for i, err := range errs {
		if errors.Is(err, driver.ErrLost) {
			rest, at = append(rest, leases[i]), append(at, i)
		}
	}
	if len(rest) > 0 {
		for n, err := range part(rest, true) {
			errs[at[n]] = err
		}
	}
	return errs
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

// batch is a part of the leases of a batch, those that are valid.
type batch struct {
	part           []int // of the leases
	names, holders []string
	ttls           []int64
	errs           []error // to be set
}

// batch runs work for the leases that are valid, and returns the result of each. If a row of a batch is damaged, the
// leases are done one by one, so that the others are.
func (l *Locker) batch(ctx context.Context, op string, leases []driver.Lease, check func(driver.Lease) error,
	work func(context.Context, *pgx.Conn, *batch) error, one func(context.Context, driver.Lease) error) []error {
	errs := make([]error, len(leases))
	var valid []int
	closed := l.calls.Closed()
	for i, lease := range leases {
		err := check(lease)
		if closed {
			err = driver.ErrClosed
		}
		if errs[i] = opError(op, lease.Name, err); err == nil {
			valid = append(valid, i)
		}
	}
	for part := range slices.Chunk(valid, batchSize) {
		var b *batch
		err := l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) error {
			b = &batch{part: part, errs: make([]error, len(part))}
			for _, i := range part {
				k := keyOf(leases[i])
				b.names, b.holders, b.ttls = append(b.names, k.name), append(b.holders, k.holder), append(b.ttls, leases[i].TTL.Milliseconds())
			}
			return work(ctx, c, b)
		})
		for n, i := range part {
			switch {
			case err == nil:
				errs[i] = opError(op, leases[i].Name, b.errs[n])
			case len(part) > 1 && strings.HasPrefix(sqlState(err), "22") && one != nil: // the server could not read a value of a row
				errs[i] = one(ctx, leases[i])
			default:
				errs[i] = opError(op, leases[i].Name, err)
			}
		}
	}
	return errs
}
