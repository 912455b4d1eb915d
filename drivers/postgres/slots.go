package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// An acquire can wait for a row: a transaction that guards its writes, or that of another program, has locked it. Many of them must keep
// the Locker's connections neither from renewals and releases nor from acquires of other locks. So acquires leave a connection free, if
// there is more than one; they wait for a row for a moment only; and of those that need longer, one at a time does, if there are three.
// Renewals and releases wait for a moment, too, and share that place.
type slots struct {
	quick, patient chan struct{} // have an element for each acquire that may use a connection
}

func newSlots(connections int) slots {
	if connections < 3 {
		return slots{quick: make(chan struct{}, 1)}
	}
	return slots{make(chan struct{}, connections-2), make(chan struct{}, 1)}
}

// grantSlot waits until an acquire may use a connection, and returns what ends that.
func (l *Locker) grantSlot(ctx context.Context) (free func(), err error) {
	limited, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	select {
	case l.slots.quick <- struct{}{}:
		return func() { <-l.slots.quick }, nil
	case <-l.calls.Context().Done():
		return nil, driver.ErrClosed
	case <-limited.Done():
		return nil, driverutil.Unsent(l.explain(ctx, limited, errNoConnection))
	}
}

// patience is how long a call that has found its row locked waits for its turn to be patient. It has no connection then. Where commits are
// slow, rows are locked for longer than a moment, and the turns of calls that meet are over soon.
const patience = time.Second

// patientSlot is grantSlot for a call that has found the row locked. It returns false if others have been patient for all of the time.
func (l *Locker) patientSlot(ctx context.Context) (free func(), ok bool) {
	if l.slots.patient == nil {
		return func() {}, false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.slots.patient <- struct{}{}:
		return func() { <-l.slots.patient }, true
	case <-timer.C:
	case <-ctx.Done():
	case <-l.calls.Context().Done():
	}
	return func() {}, false
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
	return l.withBlockers(ctx, op, lease.Name, err)
}
