package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// do runs the statements of one call, as call does, and wraps its error.
func (l *Locker) do(ctx context.Context, op, name string, invalid error, work func(context.Context, *pgx.Conn) error) error {
	return l.withBlockers(ctx, op, name, l.call(ctx, invalid, work))
}

// call runs work on a connection with a time limit. It runs it again after an error that is certain to have changed
// nothing and that a repetition may mend.
func (l *Locker) call(ctx context.Context, invalid error, work func(context.Context, *pgx.Conn) error) error {
	timeout := l.config.timeout
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) > 2*askTime { // some time is left to ask why there was no answer
		timeout = min(timeout, time.Until(deadline)-askTime)
	}
	connected := false // once in this call: what was sent then is not known
	err := l.calls.Run(ctx, timeout, invalid, func(limited context.Context) error {
		var rows unwrittenRows
		for tries := 0; ; tries++ {
			err := rows.note(l.once(limited, func(ctx context.Context, c *pgx.Conn) error {
				connected = true
				return work(ctx, c)
			}))
			if err == nil || !l.repeats(limited, err, tries) {
				return l.explain(ctx, limited, err)
			}
		}
	})
	if connected {
		return err
	}
	return driverutil.Unsent(err)
}

func (l *Locker) once(ctx context.Context, work func(context.Context, *pgx.Conn) error) error {
	connected := false
	err := l.pool.AcquireFunc(bare{ctx}, func(c *pgxpool.Conn) error {
		connected = true
		if l.cluster.left(c.Conn().PgConn()) { // nothing was sent
			l.pool.Reset()
			return errOldPrimary
		}
		noted := c.Conn().PgConn().CustomData()
		delete(noted, warning)
		err := work(ctx, c.Conn())
		if text, warned := noted[warning]; warned && err == nil {
			// Promise 1: the standby may not have what was written, and a fail-over would forget it.
			err = fmt.Errorf("the server warned: %v", text)
		}
		if hasCode(err, codeReadOnly) { // it may have become a standby: the next connection finds the primary
			_ = c.Conn().Close(ctx)
		}
		l.retire(ctx, c.Conn())
		return err
	})
	if err != nil && !connected && ctx.Err() != nil && err.Error() == ctx.Err().Error() {
		err = errNoConnection
	}
	return err
}

const (
	mostRepeats  = 50
	mostReopened = 3
)

// repeats reports whether to run a call again, and waits before that. The statement has certainly changed nothing.
func (l *Locker) repeats(ctx context.Context, err error, tries int) bool {
	var connect *pgconn.ConnectError
	most := mostReopened
	switch {
	case hasCode(err, codeNoStatement, codeDuplicateStatement):
		// A pooler gives each transaction another connection of the server.
		if !l.unprepared.Swap(true) {
			l.pool.Reset()
			return true
		}
		most += int(l.pool.Config().MaxConns)
	case errors.Is(err, errChanging), hasCode(err, codeSerialization, codeDeadlock, codeUniqueViolation):
		// Another changed the row between two statements; or the default isolation level is stricter than this driver needs;
		// or two first grants of a name came within one millisecond, and met in the index of (name, token).
		most = mostRepeats
	case err == errOldPrimary: //nolint:errorlint // it is that of a connection that was made before: the next one leads to the new primary
	case errors.Is(err, errNotStored), hasCode(err, codeNotSupported, codeReadOnly), !errors.As(err, &connect) && pgconn.SafeToRetry(err):
		// The server's clock has stepped back, or a trigger changes rows; or the table was altered; or the server is a standby now; or
		// the connection was dead.
	default:
		return false
	}
	if tries >= most {
		return false
	}
	return retry.Wait(ctx, rand.N(retry.Delay(tries, time.Millisecond, 50*time.Millisecond)))
}

// unwritten is errChanging for a row with a version; "" if there was none.
type unwritten struct{ version string }

func (*unwritten) Error() string { return errChanging.Error() }

// Unwrap makes errors.Is find errChanging.
func (*unwritten) Unwrap() error { return errChanging }

// errUnwritable: the row stays as it is, although nobody else writes it.
var errUnwritable = errors.New("the server does not write the row, although nobody else changes it; " +
	"look for row-level security, triggers and rules of the table, and remove them")

// unwrittenMost is after how many failures with one version of the row a call ends. Others that write change the version.
const unwrittenMost = 3

// unwrittenRows counts in one call.
type unwrittenRows struct {
	version string
	times   int
}

// note returns the error of one try, or errUnwritable.
func (u *unwrittenRows) note(err error) error {
	var row *unwritten
	if !errors.As(err, &row) {
		u.times = 0
		return err
	}
	if row.version != u.version {
		u.version, u.times = row.version, 0
	}
	if u.times++; u.times < unwrittenMost {
		return err
	}
	return driver.Denied(errUnwritable)
}
