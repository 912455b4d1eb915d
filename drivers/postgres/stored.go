package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-go/holdfast/driver"
)

// Promise 1: a statement that writes returns whether the row is as it was written. A trigger can discard or change the new row, and the
// server reports success: a renewal would change nothing, and a second holder would be granted the lock with the token of the first.

// errNotStored: the server reports a write that the table does not have.
var errNotStored = driver.Denied(errors.New("the table does not keep what is written: " +
	"a trigger on it changes or discards new rows; drop or correct the trigger"))

// stored reads the one row of a statement that writes, which says whether it is as it was written.
func stored(row pgx.Row) (found bool, err error) {
	var kept pgtype.Bool
	err = row.Scan(&kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil && !kept.Bool:
		err = errNotStored
	}
	return err == nil, err
}

// leaseStored is the SQL condition that a lease of a TTL has been written by this statement.
func leaseStored(l, holder, ttl string) string {
	return `coalesce(` + l + `holder = ` + holder + ` AND ` + l + `expires >= statement_timestamp() + ` + ttl + ` * interval '1 ms', false)`
}

// meddlers are what people have added to the table that can keep a statement from doing what it says.
type meddlers struct {
	rules, triggers string // their names, quoted, or ""
	hidden          string // commands of which a policy of row-level security can hide rows from this user, or ""
}

// readMeddlers reads them. A policy that is no more than (true) hides nothing.
func readMeddlers(ctx context.Context, c *pgx.Conn, oid uint32) (m meddlers, err error) {
	err = c.QueryRow(ctx, `WITH p AS (SELECT polcmd, polpermissive AS adds,
				coalesce(pg_get_expr(polqual, polrelid), 'true') = 'true' AND coalesce(pg_get_expr(polwithcheck, polrelid), 'true') = 'true' AS all_rows
			FROM pg_policy WHERE polrelid = $1::oid
				AND EXISTS (SELECT FROM unnest(polroles) AS r WHERE CASE WHEN r = 0 THEN true ELSE pg_has_role(r, 'USAGE') END))
		SELECT (SELECT coalesce(string_agg(quote_ident(rulename), ', ' ORDER BY rulename), '') FROM pg_rewrite
				WHERE ev_class = $1::oid AND ev_type IN ('2', '3') AND ev_enabled <> 'D'),
			(SELECT coalesce(string_agg(quote_ident(tgname), ', ' ORDER BY tgname), '') FROM pg_trigger
				WHERE tgrelid = $1::oid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & (4 | 16) <> 0), -- INSERT, UPDATE
			CASE WHEN row_security_active($1::oid) THEN (SELECT coalesce(string_agg(verb, ', ' ORDER BY n), '')
				FROM (VALUES (1, 'r', 'SELECT'), (2, 'a', 'INSERT'), (3, 'w', 'UPDATE')) AS v(n, cmd, verb)
				WHERE NOT EXISTS (SELECT FROM p WHERE adds AND all_rows AND polcmd IN ('*', cmd))
					OR EXISTS (SELECT FROM p WHERE NOT adds AND NOT all_rows AND polcmd IN ('*', cmd))) ELSE '' END`, oid).
		Scan(&m.rules, &m.triggers, &m.hidden)
	return m, err
}

// finding says what is wrong, for [Locker.Check]; an empty Detail means nothing. table is a quoted name.
func (m meddlers) finding(ctx context.Context, l *Locker, c *pgx.Conn, table string) (f driver.Finding, err error) {
	f = driver.Finding{Subject: subjectTable, Level: driver.LevelWrong}
	switch {
	case m.rules != "":
		f.Detail = fmt.Sprintf("%s has rules for writes: %s", table, m.rules)
		f.Remedy = "Drop them as the owner, or keep the locks in another table."
	case m.hidden != "":
		f.Subject = subjectRows
		f.Detail = fmt.Sprintf("row-level security is in effect for this user on %s: a policy can hide the row of a lock that is held (%s)",
			table, m.hidden)
		f.Remedy = "Run this as the owner, or let the user bypass it:"
		f.Command = "ALTER TABLE " + table + " DISABLE ROW LEVEL SECURITY"
	case m.triggers != "":
		problem, err := l.trial(ctx, c)
		if problem == nil {
			return driver.Finding{}, err
		}
		f.Detail = fmt.Sprintf("with the triggers of %s (%s) a lock does not work: %s", table, m.triggers, problem)
		f.Remedy = "Drop or correct the trigger that does it, or keep the locks in another table."
	default:
		return driver.Finding{}, nil
	}
	return f, nil
}

// refusal is the error for a Locker that begins, or nil. One that only reads minds what hides rows.
func (m meddlers) refusal(ctx context.Context, l *Locker, c *pgx.Conn) error {
	table := l.config.table.quoted()
	if l.config.onlyReads {
		if m.triggers, m.rules = "", ""; !strings.Contains(m.hidden, "SELECT") {
			m.hidden = ""
		}
	}
	f, err := m.finding(ctx, l, c, table)
	switch {
	case err != nil || f.Detail == "":
		return err
	case m.rules != "":
		return driver.Damaged(errors.New(f.Detail + "; drop them, or name another table in the URL parameter " + paramTable))
	case f.Command != "":
		return driver.Denied(errors.New(f.Detail + "; as the owner run " + f.Command + ", or let the user bypass it"))
	}
	return driver.Denied(errors.New(f.Detail + "; drop or correct the trigger, or name another table in the URL parameter " + paramTable))
}

// trial acquires, renews, releases and acquires a lock of its own, all in one transaction of the server's, which its last statement
// ends with an error: nothing remains. problem is what did not work. It runs where the table has triggers: what they do is their own.
func (l *Locker) trial(ctx context.Context, c *pgx.Conn) (problem, err error) {
	name, a, b := "holdfast trial "+rand.Text(), rand.Text(), rand.Text()
	grant := func(holder string) []any {
		return []any{name, holder, "trial", time.Hour.Milliseconds(), []byte("x"), "", false}
	}
	batch := &pgx.Batch{}
	batch.Queue(l.sql.acquire, grant(a)...)
	batch.Queue(l.sql.renew, name, a, time.Hour.Milliseconds())
	batch.Queue(l.sql.release, name, a)
	batch.Queue(l.sql.acquire, grant(b)...)
	batch.Queue(`SELECT set_config('synchronous_commit', 'a trial of the table ends here', true)`)
	results := c.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // its error is that of the last statement
	first, err := trialGrant(results)
	if err == nil {
		err = mustFind(stored(results.QueryRow()))
	}
	if err == nil {
		var calls wakeups
		rows, _ := results.Query() // its error is also that of the rows
		names, failed := calls.collect(rows)
		err = mustFind(names[name], failed)
	}
	if err == nil {
		var second uint64
		if second, err = trialGrant(results); err == nil && second <= first {
			err = errNotStored
		}
	}
	if err != nil {
		return judge(err)
	}
	if _, err = results.Exec(); hasCode(err, codeBadParameter) {
		err = nil
	}
	return nil, err
}

func trialGrant(results pgx.BatchResults) (token uint64, err error) {
	var lease driver.Lease
	_, err = scanGrant(results.QueryRow(), &lease)
	return lease.Token, mustFind(lease.Token != 0, err)
}

// mustFind is the error of a trial's statement that must find its row.
func mustFind(found bool, err error) error {
	if err == nil && !found {
		return errNotStored
	}
	return err
}

// judge tells what a trigger does from errors that have another cause: those of connections, of the server's state, of other
// transactions and of poolers. A server that only reads has no trial.
func judge(err error) (problem, other error) {
	switch code := sqlState(err); {
	case hasCode(err, codeReadOnly):
		return nil, nil
	case errors.Is(err, errNotStored):
		return errors.New("what is written is changed or discarded"), nil
	case code == "" || hasCode(err, codeDuplicateStatement) ||
		slices.Contains([]string{"08", "25", "26", "40", "53", "55", "57", "XX"}, code[:2]):
		return nil, err
	}
	return errors.New(textOf(err)), nil
}
