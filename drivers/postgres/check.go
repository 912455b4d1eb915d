package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What [Locker.Check] examines.
const (
	subjectServer       = "server"
	subjectPrimary      = "primary"
	subjectDurability   = "durability"
	subjectStandbys     = "standbys"
	subjectTable        = "table"
	subjectRights       = "rights"
	subjectRows         = "row-level security"
	subjectTransactions = "transactions"
	subjectClock        = "clock"
	subjectWaking       = "notifications"
)

// checkup is one call of Check.
type checkup struct {
	driverutil.Report
	l      *Locker
	found  found
	table  string        // quoted, with its schema
	offset time.Duration // of the server's clock to that of this process, at the beginning
}

// Check implements [driver.Checker]. It reads, and sends a notification to itself.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	c := &checkup{l: l, Report: report}
	return driverutil.CheckSteps(ctx, backend, l.calls.Closed,
		c.server, c.hosts, c.primary, c.durability, c.standbys, c.transactions, c.examineTable, c.clock, c.waking)
}

// read runs one query of a step. A right that is missing leaves the step unchecked. Any other failure says nothing about what the step
// examines, but something about the server: it did not answer in time, say.
func (c *checkup) read(ctx context.Context, subject string, query func(context.Context, *pgx.Conn) error) bool {
	err := c.l.call(ctx, nil, query)
	if err == nil {
		return true
	}
	if hasCode(err, codeDenied) {
		c.Unchecked(subject, "", "%s", driver.ErrorText(err))
	} else {
		c.Doubtful(subject, "Check again; if this stays, look into the server's log.", "it was not examined: %s", driver.ErrorText(err))
	}
	return false
}

func (c *checkup) server(ctx context.Context) bool {
	var took time.Duration
	err := c.l.call(ctx, nil, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if c.found, err = lookUp(ctx, conn, c.l.config.table); err != nil {
			return err
		}
		began := time.Now()
		if c.offset, err = clockOffset(ctx, conn); err != nil {
			return err
		}
		took = time.Since(began)
		return c.found.refusal()
	})
	switch {
	case errors.Is(err, driver.ErrInvalid):
		c.Wrong(subjectServer, "Keep the locks in a database of another server.", "", "%s", driver.ErrorText(err))
	case err != nil:
		c.Wrong(subjectServer, "Check that the server runs, that this machine reaches its port (firewall, DNS, TLS), "+
			"and the URL's host, port, user and database.", "", "%s", driver.ErrorText(err))
	default:
		server := fmt.Sprintf("PostgreSQL %d.%d", c.found.version/10000, c.found.version%10000)
		c.Of(server).OK(subjectServer, "%s answered in %v", server, took.Round(100*time.Microsecond))
	}
	return err == nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// primary examines whether the URL leads to a server that writes.
func (c *checkup) primary(context.Context) bool {
	switch f := c.found; {
	case f.recovering:
		age := ""
		if f.lag != nil {
			age = fmt.Sprintf("; what it has last replayed is %v old", seconds(*f.lag).Round(time.Millisecond))
		}
		c.Wrong(subjectPrimary, "Name the primary in the URL, or all servers as hosts: h1,h2.", "",
			"the server is a standby: no lock can be acquired or renewed there%s", age)
		return false
	case f.readOnly == "on":
		c.Wrong(subjectPrimary, "Set it to off for the user of the locks: ALTER ROLE … SET default_transaction_read_only = off.", "",
			"default_transaction_read_only is on: no lock can be acquired or renewed")
		return false
	}
	c.OK(subjectPrimary, "it is a primary, and takes writes")
	return true
}

// durability examines what a crash of the server can lose.
func (c *checkup) durability(context.Context) bool {
	switch f := c.found; {
	case f.fsync == "off":
		c.Wrong(subjectDurability, "Set fsync to on.", "", "fsync is off: a crash of the machine can lose grants, or the database")
	case f.commit == "remote_write" && f.sync != "":
		c.Doubtful(subjectDurability, "Set synchronous_commit to on for the user of the locks.",
			"synchronous_commit is remote_write: a standby confirms what it has not written to its disk")
	case f.commit == "off" || f.commit == "local":
		c.OK(subjectDurability, "synchronous_commit is %s by default, and on for every grant, renewal and release", f.commit)
	default:
		c.OK(subjectDurability, "every grant, renewal and release is flushed before it is confirmed")
	}
	return true
}

// maxLag is how far a standby may be behind before it is reported.
const maxLag = 10 * time.Second

// standbysSQL reads who receives the server's writes, without backups and logical replication: the names of asynchronous
// standbys and of others, how many the user may not see, how many there are, and of those others, the lag and the name of the last, and
// whether one has a slot that waits for it.
const standbysSQL = `SELECT coalesce(string_agg(name, ', ' ORDER BY name) FILTER (WHERE sync_state IN ('async', 'potential')), ''),
		coalesce(string_agg(name, ', ' ORDER BY name) FILTER (WHERE sync_state NOT IN ('async', 'potential')), ''),
		count(*) FILTER (WHERE state IS NULL), count(*), count(*) FILTER (WHERE sync_state NOT IN ('async', 'potential')),
		coalesce(max(lag), 0)::float8, coalesce((array_agg(name ORDER BY lag DESC))[1], ''),
		EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active)
	FROM (SELECT sync_state, state, to_json(coalesce(application_name, ''))::text AS name, coalesce(extract(epoch FROM replay_lag), 0) AS lag
		FROM pg_stat_replication WHERE (state IS NULL OR state <> 'backup')
			AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)) AS s`

// standbys examines what a fail-over can lose.
func (c *checkup) standbys(ctx context.Context) bool {
	var async, sync, last string
	var hidden, all, waited int
	var lag float64
	var away bool
	if !c.read(ctx, subjectStandbys, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, standbysSQL).Scan(&async, &sync, &hidden, &all, &waited, &lag, &last, &away)
	}) {
		return true
	}
	count := fmt.Sprintf("standbys: %d", all)
	if hidden == 0 {
		count += fmt.Sprintf(", synchronous: %d", waited)
	}
	report := c.Of(count)
	const forget = "a fail-over to one of them can forget the latest grants, and two holders then have one lock"
	const remedy = "Set synchronous_standby_names, such as 'ANY 1 (*)', and fail over to a standby that has confirmed."
	switch names := c.found.sync; {
	case names == "" && async != "":
		report.Doubtful(subjectStandbys, remedy, "these standbys are asynchronous: %s; %s", async, forget)
	case names == "" && hidden > 0:
		report.Doubtful(subjectStandbys, remedy, "there are standbys, and synchronous_standby_names is empty; %s", forget)
	case names == "" && away:
		report.Doubtful(subjectStandbys, remedy, "a replication slot waits for a standby that is not connected, and synchronous_standby_names "+
			"is empty; a fail-over to it forgets the latest grants")
	case names == "":
		c.survive(c.found.fsync != "off" && !severalHosts(c.l.pool.Config().ConnConfig))
		report.OK(subjectStandbys, "none is connected: it is a single server, and after a crash the locks are there again when it is; "+
			"with a standby, set synchronous_standby_names")
	case hidden > 0:
		c.survive(true)
		report.Unchecked(subjectStandbys, "Grant the user the role pg_monitor.",
			"commits wait for synchronous_standby_names = %s; the user may not see the standbys", driver.Quote(names))
	case sync == "":
		report.Wrong(subjectStandbys, "Start the standby, or correct its application_name in primary_conninfo.", "",
			"commits wait for synchronous_standby_names = %s, and no such standby is connected: each acquire times out", driver.Quote(names))
	case async != "":
		c.survive(true)
		report.Doubtful(subjectStandbys, "Fail over to a synchronous one only.",
			"commits wait for %s; these are asynchronous: %s; %s", sync, async, forget)
	default:
		c.survive(true)
		report.OK(subjectStandbys, "commits wait for %s", sync)
	}
	if behind := seconds(lag); behind > maxLag {
		c.Doubtful(subjectStandbys, "Look for a slow disk, a slow network, or a long query on the standby.",
			"the standby %s is %v behind: a fail-over takes as long", last, behind.Round(time.Second))
	}
	return true
}

// survive notes what a Locker that only examines can declare. Another has found that out when it was opened.
func (c *checkup) survive(yes bool) {
	if c.l.config.onlyReads {
		c.l.survives.Store(yes)
	}
}

// examineTable examines the table and the rights on it.
func (c *checkup) examineTable(ctx context.Context) bool {
	if c.found.oid == 0 {
		c.absentTable()
		return false
	}
	var s tableState
	var meddles driver.Finding
	c.table = tableName{c.found.schema, c.l.config.table.name}.quoted()
	if !c.read(ctx, subjectTable, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if s, err = readTable(ctx, conn, c.found.oid); err == nil && s.problem == "" {
			if s.missing != "" {
				s.triggers = "" // they are not tried
			}
			meddles, err = s.finding(ctx, c.l, conn, c.table)
		}
		return err
	}) {
		return false
	}
	if s.unlogged {
		c.survive(false)
	}
	switch {
	case s.problem != "":
		c.Wrong(subjectTable, "Name another table in the URL parameter "+paramTable+", in all programs at the same time, "+
			"or alter this one as the driver's schema.sql has it.", "",
			"%s is not one for locks, or of an older version: %s", c.table, s.problem)
		return false
	case meddles.Subject == subjectTable:
		c.Report(meddles)
	case s.unlogged:
		c.Wrong(subjectTable, "Run this as the owner:", "ALTER TABLE "+c.table+" SET LOGGED",
			"%s is UNLOGGED: it is empty after a crash, and on every standby", c.table)
	case s.triggers != "":
		c.OK(subjectTable, "%s has what locks need; its triggers %s leave that as it is", c.table, s.triggers)
	default:
		c.OK(subjectTable, "%s has what locks need", c.table)
	}
	c.otherTables()
	if s.missing != "" {
		c.Wrong(subjectRights, "Run this as the owner, with the user of the locks:", "GRANT "+s.missing+" ON "+c.table+" TO USER",
			"the user lacks %s on %s", s.missing, c.table)
	} else {
		c.OK(subjectRights, "the user may read and write %s", c.table)
	}
	if meddles.Subject == subjectRows {
		c.Report(meddles)
	} else {
		c.OK(subjectRows, "no policy hides rows from this user")
	}
	c.subscriptions(ctx)
	return s.missing == ""
}

// clockOffset is how far the server's clock is ahead of this process's elapsed time.
func clockOffset(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	var now time.Time
	began := time.Now()
	err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now.Sub(processStart) - (began.Sub(processStart)+time.Since(processStart))/2, err
}

var processStart = time.Now()

// maxStep is how much the server's clock may differ from elapsed time within a checkup, which a busy machine delays.
const maxStep = 250 * time.Millisecond

// clock examines whether the server's clock steps.
func (c *checkup) clock(ctx context.Context) bool {
	var now time.Duration
	var ahead *float64
	if !c.read(ctx, subjectClock, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if now, err = clockOffset(ctx, conn); err != nil {
			return err
		}
		return conn.QueryRow(ctx, `SELECT extract(epoch FROM max(greatest(acquired_at, renewed_at)) - clock_timestamp())::float8 FROM `+c.table).
			Scan(&ahead)
	}) {
		return true
	}
	const remedy = "Let the time service of the server's machine slew its clock and not step it."
	step := (now - c.offset).Round(time.Millisecond)
	switch {
	case ahead != nil && *ahead > 1:
		c.Doubtful(subjectClock, remedy, "a lock was written %v in the future: the server's clock has stepped back, "+
			"or another server has taken over whose clock is behind; leases last longer meanwhile",
			seconds(*ahead).Round(time.Second))
	case step > maxStep || step < -maxStep:
		c.Doubtful(subjectClock, remedy, "the server's clock has stepped by %v during this check: a step forward ends leases early", step)
	default:
		c.OK(subjectClock, "the server's clock runs evenly; it alone judges leases")
	}
	return true
}

// waking examines whether notifications reach this process.
func (c *checkup) waking(ctx context.Context) bool {
	events, err := c.l.listen(ctx)
	switch {
	case err == nil:
		events.Close()
		c.OK(subjectWaking, "a notification arrives: releases wake waiters")
	case errors.Is(err, errElsewhere):
		c.Doubtful(subjectWaking, "Name the database of the locks in the URL parameter "+paramListen+".", "%s", textOf(err))
	case errors.Is(err, errUndelivered):
		c.Doubtful(subjectWaking,
			"Give the URL of the server itself in the URL parameter "+paramListen+", percent-encoded, or use session pooling.",
			"the server's notifications do not arrive, so a pooler in transaction or statement mode is between: waiters poll")
	case ctx.Err() == nil:
		c.Doubtful(subjectWaking, "Check the URL parameter "+paramListen+", and that the server has a connection left.",
			"the connection that is notified of releases cannot be opened: %s", textOf(err))
	}
	return true
}

// RemoveProbe implements [driver.Checker].
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.do(ctx, "remove", name, driver.ValidateName(name, limits), func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, l.sql.remove, toText(name))
		return err
	})
}
