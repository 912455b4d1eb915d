package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// Codes of the server's errors.
const (
	codeNotSupported       = "0A000"
	codeBadParameter       = "22023"
	codeReadOnly           = "25006"
	codeNoStatement        = "26000"
	codeUniqueViolation    = "23505"
	codeSerialization      = "40001"
	codeDeadlock           = "40P01"
	codeDuplicateObject    = "42710"
	codeDuplicateTable     = "42P07"
	codeDuplicateStatement = "42P05"
	codeDenied             = "42501"
	codeNoTable            = "42P01"
	codeDiskFull           = "53100"
	codeLockTimeout        = "55P03"
)

const notForLocks = "the table is not one for locks, or of an older version: see the driver's schema.sql"

// denials are codes after which a person must change something. The statement was refused as a whole.
var denials = map[string]string{
	codeDenied:       "grant it",
	codeReadOnly:     "connect to the primary, and set default_transaction_read_only to off there",
	codeNotSupported: "the table, or the server, does not support it",
	"55000":          "the table cannot be written as it is",
	codeNoTable:      "make the table by the driver's schema.sql, or restart the program",
	codeDiskFull:     "make room on the server",
	"28000":          "check user, database and pg_hba.conf",
	"28P01":          "check user and password",
	"3D000":          "create the database, or correct its name in the URL",
	"3F000":          "create the schema",
	"42703":          notForLocks,
	"42804":          notForLocks,
	"42883":          notForLocks,
	"42P10":          notForLocks,
	"23502":          notForLocks,
	"23503":          "the table has a foreign key that forbids it",
	"23514":          "the table has a constraint that forbids it",
	"42704":          "the URL or the variable PGOPTIONS sets a parameter that the server does not know",
	codeNoStatement:  "the pooler mixes prepared statements: add default_query_exec_mode=exec to the URL",
	"22P05":          "the database cannot store this text: its encoding must be UTF8",
}

// errStandby: the URL leads to a server that only reads.
var errStandby = errors.New("the server is a standby: name all servers as hosts in the URL, or the primary alone")

// warning is where a connection notes the server's warning of the present call.
const warning = "holdfast.warning"

// do runs the statements of one call, as call does, and wraps its error.
func (l *Locker) do(ctx context.Context, op, name string, invalid error, work func(context.Context, *pgx.Conn) error) error {
	return opError(op, name, l.withBlockers(ctx, name, l.call(ctx, invalid, work)))
}

// opError is the error of a call, or nil.
func opError(op, name string, err error) error {
	return driverutil.OpError(op, backend, name, err)
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

// explain makes the error of a call from that of a statement. It wraps no cause of a context's end, which may be the
// loss of another lock.
func (l *Locker) explain(ctx, limited context.Context, err error) error {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	var slow net.Error
	denied := lasting(err)
	switch {
	case err == nil, driver.OutcomeKnown(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%s)", ctx.Err(), l.pending(err))
	case l.calls.Context().Err() != nil:
		return fmt.Errorf("interrupted by Close: %s", textOf(err))
	case limited.Err() != nil:
		return fmt.Errorf("no answer within the time limit: %w (%s)", context.DeadlineExceeded, l.pending(err))
	case errors.As(err, &slow) && slow.Timeout(): // pgx can find the end of an earlier call's context on the connection
		return fmt.Errorf("no answer in time: %w (%s)", context.DeadlineExceeded, l.pending(err))
	case denied != nil:
		return denied
	case !errors.As(err, &server):
		return errors.New(textOf(err))
	case refusedParameter(server):
		return driver.Denied(&serverError{textOf(err) + "; " + refusedParameterHelp, server})
	case strings.HasPrefix(server.Code, "22") && errors.As(err, &connect):
		return driver.Denied(&serverError{textOf(err) + "; correct the parameter in the URL or in the variable PGOPTIONS", server})
	case denials[server.Code] != "":
		return driver.Denied(&serverError{textOf(err) + "; " + denials[server.Code], server})
	case strings.HasPrefix(server.Code, "22"):
		return driver.Damaged(&serverError{"its row, or one that it meets, has a value that is no lock's: " + server.Error(), server})
	}
	return &serverError{textOf(err), server}
}

// serverError is an error of the server with another text.
type serverError struct {
	text string
	err  *pgconn.PgError
}

func (e *serverError) Error() string { return e.text }

// Unwrap returns the server's error.
func (e *serverError) Unwrap() error { return e.err }

// textOf is the text of an error without what pgx puts before it: user and database.
func textOf(err error) string {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return "cannot connect: " + connectText.Replace(errors.Unwrap(connect).Error())
	}
	return err.Error()
}

// connectText leaves out which of pgx's functions refused a server.
var connectText = strings.NewReplacer("\n", "; ", "ValidateConnect failed: ", "")

func hasCode(err error, codes ...string) bool { return slices.Contains(codes, sqlState(err)) }

// tracer counts the requests of a Locker.
type tracer struct{ sent func() }

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.sent()
	return ctx
}

func (t tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
