package mysql

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What Check examines, besides what package cas does.
const (
	subjectServer      = "server"
	subjectHosts       = "hosts"
	subjectPrimary     = "primary"
	subjectDurability  = "durability"
	subjectReplication = "replication"
	subjectTable       = "table"
	subjectRights      = "rights"
	subjectClock       = "clock"
	subjectGrade       = "grade"
)

// The two grades of a deployment.
const (
	savesWork    = "saves work"
	protectsData = "protects data"
)

// examination is one call of Check.
type examination struct {
	driverutil.Report
	l      *Locker
	facts  map[string]string
	status map[string]string
	writes bool // the server takes writes
	// reasons are why the deployment does not protect data.
	reasons []string
}

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	e := &examination{l: l, Report: report}
	err := driverutil.CheckSteps(ctx, backend, nil, e.server)
	if err != nil || e.facts == nil {
		return err
	}
	if err := driverutil.CheckSteps(ctx, backend, nil, e.hosts, e.primary, e.durability, e.replication, e.source, e.grade); err != nil {
		return err
	}
	exists := false
	err = driverutil.CheckSteps(ctx, backend, nil, func(ctx context.Context) bool { exists = e.table(ctx); return exists }, e.rights, e.clock)
	if err != nil || !exists {
		return err
	}
	return l.Locker.Check(ctx, report)
}

// lacks notes a reason why the deployment does not protect data.
func (e *examination) lacks(reason string) {
	e.reasons = append(e.reasons, reason)
}

// ask makes a request of a step, with a time limit.
func (e *examination) ask(ctx context.Context, request func(context.Context, session) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.l.store.config.timeout)
	defer cancel()
	_, err := do(ctx, e.l.store, func(ctx context.Context, c session) (struct{}, error) { return struct{}{}, request(ctx, c) })
	return err
}

// statusNames are what a server says of its replication.
var statusNames = []string{"wsrep_cluster_size", "wsrep_cluster_status", "rpl_semi_sync_master_status", "rpl_semi_sync_source_status",
	"slaves_connected"}

func (e *examination) server(ctx context.Context) bool {
	var took time.Duration
	var b behaviour
	err := e.ask(ctx, func(ctx context.Context, c session) (err error) {
		began := time.Now()
		if e.facts, err = variables(ctx, c.conn, "GLOBAL VARIABLES", facts); err != nil {
			return err
		}
		took = time.Since(began)
		if e.status, err = variables(ctx, c.conn, "GLOBAL STATUS", statusNames); err != nil {
			return err
		}
		return c.query(ctx, c.reads()+c.manners(), func() {}, b.columns()...)
	})
	if err == nil {
		err = b.refusal(true)
	}
	switch {
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrDenied):
		e.Wrong(subjectServer, "Correct what the message names.", "", "%s", driver.ErrorText(err))
	case err != nil:
		e.Wrong(subjectServer, "Check that the server runs, that this machine reaches its port (firewall, DNS, TLS), and the URL's host, port, "+
			"user and database.", "", "%s", driver.ErrorText(err))
	default:
		e.writes = b.writes
		product := "MySQL "
		if isMariaDB(e.facts["version"]) {
			product = ""
		}
		product += e.facts["version"]
		e.Of(product).OK(subjectServer, "%s answered in %v", product, took.Round(100*time.Microsecond))
		return true
	}
	e.facts = nil
	return false
}

func (e *examination) primary(context.Context) bool {
	if !e.writes {
		e.Wrong(subjectPrimary, "Name the primary in the URL, or all servers as hosts: h1,h2.", "",
			"%s: no lock can be acquired or renewed there", errReadOnly)
		e.lacks("the server is read-only")
		return true
	}
	e.OK(subjectPrimary, "it takes writes")
	return true
}

// durability examines what a crash of the server can lose.
func (e *examination) durability(context.Context) bool {
	flush, binlog := e.facts["innodb_flush_log_at_trx_commit"], e.facts["sync_binlog"]
	switch {
	case flush != "1":
		e.Doubtful(subjectDurability, "Set innodb_flush_log_at_trx_commit to 1.", "innodb_flush_log_at_trx_commit is %s: a crash of the machine "+
			"forgets the grants of the last second or more", flush)
		e.lacks("a crash of the machine may forget grants")
	case isOn(e.facts["log_bin"]) && binlog != "1" && !isOn(e.facts["wsrep_on"]):
		e.Doubtful(subjectDurability, "Set sync_binlog to 1.", "sync_binlog is %s: after a crash of the machine the binary log may lack grants, "+
			"and replicas with it", binlog)
		e.lacks("a crash of the machine may forget what replicas have not received")
	default:
		e.OK(subjectDurability, "every grant, renewal and release is flushed before it is confirmed")
	}
	return true
}

// replication examines what a fail-over can lose.
func (e *examination) replication(context.Context) bool {
	wait, limit := e.facts["rpl_semi_sync_source_wait_point"]+e.facts["rpl_semi_sync_master_wait_point"],
		e.facts["rpl_semi_sync_source_timeout"]+e.facts["rpl_semi_sync_master_timeout"]
	semi := isOn(e.status["rpl_semi_sync_master_status"]) || isOn(e.status["rpl_semi_sync_source_status"])
	report := e.Report
	switch replicas := e.status["slaves_connected"]; {
	case isOn(e.facts["wsrep_on"]):
		report = e.Of("a Galera cluster, nodes: " + e.status["wsrep_cluster_size"])
	case !isOn(e.facts["log_bin"]):
		report = e.Of("no replication")
	case replicas != "": // MariaDB shows them
		report = e.Of("connected replicas: " + replicas)
	}
	const remedy = "Use a Galera cluster, or fail over only to a replica that has received everything."
	switch {
	case isOn(e.facts["wsrep_on"]) && e.status["wsrep_cluster_status"] != "Primary":
		report.Wrong(subjectReplication, "Bring the nodes of the cluster together.", "",
			"the node does not belong to the majority of its Galera cluster")
		e.lacks("the Galera cluster has no majority")
	case isOn(e.facts["wsrep_on"]):
		report.OK(subjectReplication, "a Galera cluster of %s nodes: each has what was confirmed", e.status["wsrep_cluster_size"])
	case !isOn(e.facts["log_bin"]):
		report.OK(subjectReplication, "the server has no binary log, so no replicas: locks stop while it is down, and are there "+
			"again when it is")
	case semi && wait == "AFTER_SYNC":
		report.Doubtful(subjectReplication, remedy, "a replica confirms each grant, but after %s ms without an answer the server goes on "+
			"without: a fail-over then forgets the latest grants", limit)
		e.lacks("semi-synchronous replication becomes asynchronous after a time limit")
	case semi:
		report.Doubtful(subjectReplication, "Set the wait point of semi-synchronous replication to AFTER_SYNC.",
			"others see a grant before a replica has confirmed it (%s): a fail-over may forget it", wait)
		e.lacks("others see grants before a replica has them")
	case e.status["slaves_connected"] == "0":
		report.OK(subjectReplication, "no replica is connected; replication would be asynchronous, and a fail-over would forget the "+
			"latest grants")
	default:
		report.Doubtful(subjectReplication, remedy, "replication is asynchronous: a fail-over to a replica forgets the latest grants, and two "+
			"holders then have one lock")
		e.lacks("a fail-over may forget grants")
	}
	return true
}

// source examines whether a server that takes writes receives those of another one.
func (e *examination) source(ctx context.Context) bool {
	if isOn(e.facts["wsrep_on"]) || !e.writes {
		return true
	}
	rows := 0
	err := e.ask(ctx, func(ctx context.Context, c session) error {
		statement := "SHOW REPLICA STATUS"
		if c.mariaDB {
			statement = "SHOW ALL SLAVES STATUS"
		}
		found, err := c.conn.QueryContext(ctx, statement)
		if err != nil {
			return err
		}
		defer func() { _ = found.Close() }()
		for found.Next() {
			rows++
		}
		return found.Err()
	})
	switch {
	case err != nil:
		e.Unchecked(subjectReplication, "", "whether the server receives the writes of another one is not known: %s", driver.ErrorText(err))
	case rows > 0:
		e.Doubtful(subjectReplication, "Let one of the servers take writes: SET GLOBAL read_only = ON on all others.",
			"the server takes writes, and receives those of another server: if that one takes writes, too, both grant the same locks")
		e.lacks("two servers may take writes")
	}
	return true
}

// grade says what the locks of this deployment are good for.
func (e *examination) grade(context.Context) bool {
	if len(e.reasons) == 0 {
		e.OK(subjectGrade, "%s: what was found forgets no grant", protectsData)
		return true
	}
	e.OK(subjectGrade, "%s: it avoids work that is done twice, but now and then two programs may hold one lock (%s)", savesWork,
		strings.Join(e.reasons, "; "))
	return true
}

func (e *examination) table(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, e.l.store.config.timeout)
	defer cancel()
	l, err := e.l.store.layout(limited)
	switch {
	case err != nil:
		e.Doubtful(subjectTable, "Check again; if this stays, look into the server's log.", "it was not examined: %s", driver.ErrorText(err))
	case !l.exists():
		e.OK(subjectTable, "there is no table %s that this user may see; the first program makes it, if its user has the right to", l.table)
	case l.problem() != "":
		e.Wrong(subjectTable, "Name another table in the URL parameter "+paramTable+", in all programs at the same time, or alter this one "+
			"as the driver's schema.sql has it.", "", "%s is not one for locks: %s", l.table, l.problem())
	default:
		e.OK(subjectTable, "%s has what locks need", l.table)
		return true
	}
	return false
}

// rights tries writes that change no row. A server that is read-only refuses them for that reason.
func (e *examination) rights(ctx context.Context) bool {
	if !e.writes {
		return true
	}
	for _, right := range []string{"UPDATE", "INSERT"} {
		err := e.ask(ctx, func(ctx context.Context, c session) error {
			statement := "UPDATE " + c.table + " SET value = value, token = token, written = written WHERE FALSE"
			if right == "INSERT" {
				statement = "INSERT INTO " + c.table + " (name, token, written, value) SELECT '', 0, 0, '' FROM DUAL WHERE FALSE"
			}
			_, err := c.exec(ctx, statement)
			return err
		})
		switch {
		case errors.Is(err, driver.ErrDenied):
			e.Wrong(subjectRights, "Run this as an administrator, with the user of the locks:", "GRANT SELECT, INSERT, UPDATE ON "+
				e.l.store.server.Load().table+" TO USER", "the user may not write: %s", driver.ErrorText(err))
			return true
		case err != nil:
			e.Doubtful(subjectRights, "Check again.", "they were not examined: %s", driver.ErrorText(err))
			return true
		}
	}
	e.OK(subjectRights, "the user may read and write the table")
	return true
}

// maxAhead is how far in the future a row may have been written.
const maxAhead = time.Second

// clock examines whether the server's clock has stepped back.
func (e *examination) clock(ctx context.Context) bool {
	var ahead int64
	err := e.ask(ctx, func(ctx context.Context, c session) error {
		return c.query(ctx, c.reads()+"COALESCE(MAX(written) - "+clock+", 0) FROM "+c.table, func() {}, &ahead)
	})
	switch d := time.Duration(ahead) * time.Microsecond; {
	case err != nil:
		e.Unchecked(subjectClock, "", "it was not examined: %s", driver.ErrorText(err))
	case d > maxAhead:
		e.Doubtful(subjectClock, "Let the time service of the server's machine slew its clock and not step it.", "a lock was written %v in the "+
			"future: the server's clock has stepped back, or another server has taken over whose clock is behind; leases last longer meanwhile",
			d.Round(time.Second))
	default:
		e.OK(subjectClock, "no lock was written in the future; the server's clock alone judges leases")
	}
	return true
}
