package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Codes of the server's errors.
const (
	codeNotSupported       = "0A000"
	codeBadParameter       = "22023"
	codeReadOnly           = "25006"
	codeTransactionTimeout = "25P04"
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
	codeCanceled           = "57014" // by the call's end, by somebody, or by the statement_timeout of a role
)

// severityPanic is that of a server's error that ends the whole server. It can come when the commit is written already: the disk is full
// when that is to be flushed. After the restart the commit may count.
const severityPanic = "PANIC"

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

// opError is the error of a call, or nil.
func opError(op, name string, err error) error {
	return driverutil.OpError(op, backend, name, err)
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
	case server.SeverityUnlocalized == severityPanic:
		return &serverError{textOf(err), server}
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

// pending says what a call waited for that was ended by its context; err is what pgx says.
func (l *Locker) pending(err error) string {
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &connect), errors.As(err, &server), errors.Is(err, errNoConnection), errors.Is(err, errChanging),
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !pgconn.Timeout(err):
		return textOf(err)
	case l.survives.Load():
		return "the server has not answered; a commit waits for a synchronous standby: see that one is connected"
	}
	return "the server has not answered"
}

// errNoConnection: a call has ended before it had a connection.
var errNoConnection = errors.New("no connection was free or could be made")

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

// serverError is an error of the server with another text.
type serverError struct {
	text string
	err  *pgconn.PgError
}

func (e *serverError) Error() string { return e.text }

// Unwrap returns the server's error.
func (e *serverError) Unwrap() error { return e.err }

func hasCode(err error, codes ...string) bool { return slices.Contains(codes, sqlState(err)) }

// sqlState returns the server's code of an error of any driver, or "".
func sqlState(err error) string {
	var answer interface{ SQLState() string }
	if errors.As(err, &answer) {
		return answer.SQLState()
	}
	return ""
}

// warning is where a connection notes the server's warning of the present call.
const warning = "holdfast.warning"

// harmless are the functions of the server whose warnings say nothing about a commit: few transaction IDs are left, or little
// room for notifications; a trigger of the program raises it; or auto_explain or pgaudit logs a statement.
var harmless = []string{"GetNewTransactionId", "GetNewMultiXactId", "asyncQueueFillWarning", "exec_stmt_raise",
	"explain_ExecutorEnd", "log_audit_event"}

// noteWarning notes a warning. While a commit waits for a synchronous standby, a cancelled wait makes it succeed with one.
// Its text depends on the server's language, and its code says nothing. So what is not known to be harmless counts. The text of any other
// may have data in it.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	switch {
	case n.SeverityUnlocalized != "WARNING" || slices.Contains(harmless, n.Routine):
	case n.Routine == "SyncRepWaitForLSN":
		c.CustomData()[warning] = n.Message
	default:
		c.CustomData()[warning] = fmt.Sprintf("function %s, code %s; the text is not shown", driver.Quote(n.Routine), driver.Quote(n.Code))
	}
}

// refusedParameter reports whether a pooler refused a parameter of a new connection. PgBouncer passes on only those that it knows.
func refusedParameter(server *pgconn.PgError) bool {
	return server.Code == "08P01" && strings.HasPrefix(server.Message, "unsupported startup parameter")
}

const refusedParameterHelp = "a pooler does not pass it on: remove it from the URL, PGOPTIONS or PGTZ, or set it for the user; " +
	"in place of search_path the URL parameter " + paramSchema + " names the schema of the locks"
