package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// TryAcquire implements [driver.Locker] with one statement, if the lock is free or the request is refused without a new
// position.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if invalid := req.Validate(l.Info()); invalid != nil {
		return driver.Lease{}, l.do(ctx, "acquire", req.Name, invalid, nil)
	}
	r := ask{Request: req, name: toText(req.Name), holder: lockrecord.Digest(req.ID), waiter: l.place(req.Waiter),
		polls: req.QueueFor > 0 && !l.follower.Usable(), quick: l.slots.patient != nil}
	var lease driver.Lease
	free, err := l.grantSlot(ctx)
	if err == nil {
		lease, err = l.attempt(ctx, r, free)
	}
	if r.quick && hasCode(err, codeLockTimeout) {
		r.quick = false
		if free, ok := l.patientSlot(ctx); ok {
			lease, err = l.attempt(ctx, r, free)
		} else {
			err = r.rowIsLocked("")
		}
	}
	if err != nil {
		return driver.Lease{}, l.withBlockers(ctx, "acquire", req.Name, err)
	}
	return lease, nil
}

// attempt asks for the lock once, with a slot that it frees.
func (l *Locker) attempt(ctx context.Context, r ask, free func()) (lease driver.Lease, err error) {
	defer free()
	err = l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) (err error) {
		lease, err = l.grant(ctx, c, r)
		return err
	})
	return lease, err
}

// rowIsLocked refuses a request: a transaction has locked the row. If it guards its writes by the lease before, the lock is not free.
func (r ask) rowIsLocked(blocked string) error {
	return &driver.HeldError{Record: driver.Record{Name: r.Name, State: driver.StateHeld, Blocked: blocked}}
}

// statements are those of a request.
func (l *Locker) statements(r ask) *statements {
	if r.quick {
		return l.sql.quick
	}
	return l.sql
}

// ask is a request as the table knows it.
type ask struct {
	driver.Request
	name, holder, waiter string
	polls                bool // nothing wakes the waiter
	quick                bool // it waits for a row for a moment only
}

// decides applies the rules to a lock, and reports whether they grant it.
func (r ask) decides(k *lockstate.Lock, now lockstate.Moment) bool {
	if r.polls {
		return k.AcquirePolling(r.Request, r.holder, r.waiter, now)
	}
	return k.AcquireInTurn(r.Request, r.holder, r.waiter, now)
}

// errChanging: the row had changed when it was to be written, so nothing was. The call is repeated.
var errChanging = errors.New("the row changed too often to be written")

// grant makes one attempt.
func (l *Locker) grant(ctx context.Context, c *pgx.Conn, req ask) (driver.Lease, error) {
	lease := driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL}
	k, err := l.tryGrant(ctx, c, req, &lease)
	if k != nil && err == nil {
		err = l.decide(ctx, c, req, k)
		lease.Owner, lease.Token, lease.Contended = k.Owner, k.Token, len(k.Queue) > 0
	}
	switch {
	case errors.Is(err, errNotStored):
		_, _ = c.Exec(ctx, l.sql.release, req.name, req.holder) // of what is stored of it, such as a shorter lease
		return driver.Lease{}, err
	case hasCode(err, codeLockTimeout) && !req.quick:
		return driver.Lease{}, req.rowIsLocked(l.blocked(ctx, c, req.Name))
	case hasCode(err, codeCanceled) && ctx.Err() == nil:
		// Nothing was written: a server that has begun to commit is not interrupted. If nobody blocks, the server is slow.
		if blocked := l.blocked(ctx, c, req.Name); blocked != "" {
			err = req.rowIsLocked(blocked)
		}
		return driver.Lease{}, err
	case err != nil:
		return driver.Lease{}, err
	case lease.Token == 0:
		return driver.Lease{}, &unwritten{}
	}
	return lease, nil
}

// read is a lock that was read, the version of its row, and the server's clock then.
type read struct {
	*lockstate.Lock
	version string
	now     lockstate.Moment
}

// tryGrant grants the lock if that needs no decision, and completes the lease. Otherwise it returns what there is, or nil.
func (l *Locker) tryGrant(ctx context.Context, c *pgx.Conn, req ask, lease *driver.Lease) (*read, error) {
	return scanGrant(c.QueryRow(ctx, l.statements(req).acquire, req.name, req.holder, toText(req.Owner), req.TTL.Milliseconds(), req.Data,
		req.waiter, req.polls), lease)
}

// scanGrant reads the row of acquireSQL.
func scanGrant(result pgx.Row, lease *driver.Lease) (*read, error) {
	r := &row{}
	var token pgtype.Int8
	var contended, kept pgtype.Bool
	err := result.Scan(r.targets(&token, &contended, &kept)...)
	if err == nil && token.Valid && !kept.Bool {
		return nil, errNotStored
	}
	if lease.Token, lease.Contended = uint64(token.Int64), contended.Bool; err != nil || token.Valid || !r.name.Valid {
		return nil, err // without a row it was removed meanwhile
	}
	return r.read()
}

// decide applies the rules to a request that was not granted at once: it may be a repeat, or the turn of a later waiter.
// Without an error k is the lock that was granted.
//
// The time is that of the read. If the row is as it was, no renewal has come since, and a lease that had expired then
// has expired now.
func (l *Locker) decide(ctx context.Context, c *pgx.Conn, req ask, k *read) error {
	for joined := false; ; joined = true {
		before := slices.Clone(k.Queue)
		k.Data = nil // it stays, unless the request has data
		if req.decides(k.Lock, k.now) {
			return l.write(ctx, c, l.statements(req), req.name, k)
		}
		refusal := k.Refusal(req.Name, req.waiter, k.now)
		at := k.Position(req.waiter)
		if joined || at == 0 || len(k.Queue) == len(before) && slices.Contains(before, k.Queue[at-1]) {
			return refusal
		}
		// It enters the queue. Many waiters may do so at a time, so the position is not written with the row.
		entered, err := readLock(ctx, c, l.statements(req).join, req.name, req.waiter, req.QueueFor.Milliseconds(), req.polls)
		if errors.Is(err, pgx.ErrNoRows) { // the queue is full, or the row was removed
			return refusal
		}
		if err != nil {
			return err
		}
		*k = *entered // is decided again: a release in between has woken nobody
	}
}

// write writes a lock unless its row has changed since it was read. Without data it leaves them alone.
func (l *Locker) write(ctx context.Context, c *pgx.Conn, sql *statements, name string, k *read) error {
	found, err := stored(c.QueryRow(ctx, sql.write, append([]any{name, k.version}, values(k.Lock, l.config.history)...)...))
	if err == nil && !found {
		err = &unwritten{k.version}
	}
	return err
}

// readLock reads the row of a lock by a statement. Without a row the Lock is nil.
func readLock(ctx context.Context, c *pgx.Conn, statement string, args ...any) (*read, error) {
	r := &row{}
	err := c.QueryRow(ctx, statement, args...).Scan(r.targets()...)
	if err != nil || !r.name.Valid {
		return &read{now: moment(r.now)}, err
	}
	return r.read()
}
