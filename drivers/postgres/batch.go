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

func validateLease(lease driver.Lease) error { return driver.ValidateName(lease.Name, limits) }

func validateRenewal(lease driver.Lease) error { return driver.ValidateRenew(lease, limits) }

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
