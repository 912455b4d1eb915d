package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

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

// errNoConnection: a call has ended before it had a connection.
var errNoConnection = errors.New("no connection was free or could be made")

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
