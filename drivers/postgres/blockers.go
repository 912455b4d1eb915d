package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// A transaction of another program can lock the row of a lock, or the table: BEGIN and SELECT … FOR UPDATE in a forgotten console, a
// row with a foreign key, DDL. Then no request gets the lock, whatever its record says, and the holder cannot renew it. The statement
// that waited says only that it timed out. So what has failed in this way, and what people ask for, names the process to end.

// askTime limits the question who blocks: the failed call has spent its own time.
const askTime = time.Second

// longTransaction is how long a transaction may have locked some rows of the table before it is reported without a request that waits.
// A guard's are over sooner.
const longTransaction = 10 * time.Second

// tableBlockersSQL finds who keeps statements from the table of a name ($1). DDL that waits counts, too: all that comes later waits
// behind it. So does what it waits for. The statement reads no table that can be locked, and no text of a query, which can have other
// people's data.
const tableBlockersSQL = `WITH ddl AS (SELECT pid, granted FROM pg_locks
		WHERE locktype = 'relation' AND relation = to_regclass($1::text) AND pid IS DISTINCT FROM pg_backend_pid()
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock')),
	f AS (SELECT pid, 1 AS n, CASE WHEN granted THEN 'has locked the table'
			ELSE 'waits to lock the table, and statements that come later wait' END AS does FROM ddl
		UNION ALL SELECT b, 0, 'keeps process ' || pid || ' waiting, which wants to lock the table'
			FROM ddl, unnest(pg_blocking_pids(pid)) AS b WHERE NOT granted AND b > 0) ` + describeBlockers

// rowBlockersSQL finds who keeps statements from the row of a lock ($2) in a table ($1 its name). The row's xmax is the transaction
// that has locked it, unless several have, or one has made the row: then it may be any that has locked rows of the table and is idle.
func rowBlockersSQL(t string) string {
	return `WITH r AS (SELECT l.xmax AS x FROM ` + t + ` AS l WHERE l.name = $2::text),
		locker AS (SELECT pid FROM pg_locks WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock'
			AND transactionid IN (SELECT x FROM r) AND pid IS DISTINCT FROM pg_backend_pid()),
		f AS (SELECT pid, 0 AS n, 'has locked its row' AS does FROM locker
			UNION ALL SELECT DISTINCT pid, 2, 'has locked rows of the table, perhaps its row' FROM pg_locks
				WHERE locktype = 'relation' AND relation = to_regclass($1::text) AND granted AND pid IS DISTINCT FROM pg_backend_pid()
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
					AND mode IN ('RowShareLock', 'RowExclusiveLock')
					AND NOT EXISTS (SELECT FROM locker) AND NOT EXISTS (SELECT FROM r WHERE x::text = '0')) ` + describeBlockers
}

// describeBlockers says of each process what this user may see of it. A statement of a moment is none, and one that is at work and may have
// locked the row waits itself.
const describeBlockers = `SELECT coalesce(f.pid, 0), f.n, f.does, coalesce(a.application_name, ''), coalesce(a.usename::text, ''),
		coalesce(a.state, ''), coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), -1)::float8
	FROM f LEFT JOIN pg_stat_activity AS a ON a.pid = f.pid
	WHERE f.pid IS NULL OR a.state IS DISTINCT FROM 'active' OR f.n = 1
		OR f.n = 0 AND a.xact_start < clock_timestamp() - interval '1 s' ORDER BY f.n, a.xact_start LIMIT 4`

// blocker is a process that keeps statements waiting.
type blocker struct {
	pid              int // 0 for a prepared transaction
	rank             int // the first is to be ended; 2 may have locked other rows alone
	does             string
	app, user, state string
	seconds          float64 // since its transaction began; -1 if this user may not see that
}

func (b blocker) who() string {
	if b.pid == 0 {
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	var facts []string
	if b.app != "" {
		facts = append(facts, "application "+driver.Quote(b.app))
	}
	if b.user != "" {
		facts = append(facts, "user "+driver.Quote(b.user))
	}
	if b.state != "" {
		facts = append(facts, b.state)
	}
	if b.seconds >= 0 {
		facts = append(facts, "its transaction began "+driver.FormatDuration(seconds(b.seconds).Round(time.Second))+" ago")
	}
	if len(facts) == 0 {
		return fmt.Sprintf("process %d of the server", b.pid)
	}
	return fmt.Sprintf("process %d of the server (%s)", b.pid, strings.Join(facts, ", "))
}

// end is the statement that ends it.
func (b blocker) end() string {
	if b.pid == 0 {
		return "ROLLBACK PREPARED"
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d)", b.pid)
}

// blockers asks who keeps requests for a lock waiting: first from the table, which the second question reads.
func (l *Locker) blockers(ctx context.Context, c *pgx.Conn, name string) (all []blocker, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	table := l.sql.table
	for _, ask := range []struct {
		query string
		args  []any
	}{{tableBlockersSQL, []any{table}}, {rowBlockersSQL(table), []any{table, toText(name)}}} {
		rows, _ := c.Query(ctx, ask.query, ask.args...) // its error is also that of the rows
		var b blocker
		_, err = pgx.ForEachRow(rows, []any{&b.pid, &b.rank, &b.does, &b.app, &b.user, &b.state, &b.seconds}, func() error {
			all = append(all, b)
			return nil
		})
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// mattering leaves out those that may have locked other rows alone, unless they have done so for long. It is for questions that no
// request's wait has led to. While the lock is held, it also leaves out those that have locked its row for a moment: they may guard
// writes, which delays no renewal, and nobody should end them.
func mattering(all []blocker, held bool) []blocker {
	return slices.DeleteFunc(all, func(b blocker) bool {
		return b.seconds < longTransaction.Seconds() && (b.rank == 2 || held && b.rank == 0 && b.seconds >= 0)
	})
}

// blocked is [driver.Record.Blocked] after a request has timed out. If the server does not say who, it is empty.
func (l *Locker) blocked(ctx context.Context, c *pgx.Conn, name string) string {
	all, err := l.blockers(ctx, c, name)
	if err != nil {
		return ""
	}
	return describe(all)
}

// describe says who keeps requests waiting, and how to end that.
func describe(all []blocker) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(whoDoes(all), "; ") + "; end that transaction where it is, or by " + all[0].end()
}

func whoDoes(all []blocker) (said []string) {
	for _, b := range all {
		said = append(said, b.who()+" "+b.does)
	}
	return said
}

// withBlockers is opError; of a call that has timed out it also names who may have kept it waiting. The caller still waits for the call.
func (l *Locker) withBlockers(ctx context.Context, op, name string, err error) error {
	failed := opError(op, name, err)
	late := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if name == "" || !late && !hasCode(err, codeLockTimeout, codeCanceled) {
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text := ""
	_ = l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) error { text = l.blocked(ctx, c, name); return nil })
	var call *driver.OpError
	if text != "" && errors.As(failed, &call) {
		call.Err = fmt.Errorf("%w; %s", call.Err, text) // not around err: opError would not find its mark that nothing was sent
	}
	return failed
}

// transactions examines whether somebody keeps locks from being granted and renewed.
func (c *checkup) transactions(ctx context.Context) bool {
	if c.found.oid == 0 {
		return true
	}
	var all []blocker
	if !c.read(ctx, subjectTransactions, func(ctx context.Context, conn *pgx.Conn) (err error) {
		all, err = c.l.blockers(ctx, conn, "")
		return err
	}) {
		return true
	}
	if all = mattering(all, false); len(all) == 0 {
		c.OK(subjectTransactions, "no other one has locked the table, or rows of it for long")
		return true
	}
	c.Wrong(subjectTransactions,
		"Requests for these locks wait, and their holders lose them. Commit or roll back where the transaction is, or run:",
		all[0].end(), "%s", strings.Join(whoDoes(all), "; "))
	return all[0].rank == 2 // otherwise the steps that read the table would wait
}
