package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// server is what statements depend on. It is the same for all servers that can replace one another.
type server struct {
	version string
	mariaDB bool
	galera  bool
	// snapshots: the server can refuse to change a row that has changed since the transaction's snapshot.
	snapshots bool
	table     string // qualified and quoted
	// The parts of the table's name.
	database, name string
}

// facts are the variables of a server that the driver reads. A server lacks some of them.
var facts = []string{"version", "wsrep_on", "innodb_snapshot_isolation", "log_bin", "binlog_format", "innodb_flush_log_at_trx_commit",
	"sync_binlog", "rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point", "rpl_semi_sync_master_timeout",
	"rpl_semi_sync_source_timeout"}

// variables reads variables or the status of a server, by name.
func variables(ctx context.Context, conn *sql.Conn, kind string, names []string) (map[string]string, error) {
	var name, value string
	values := map[string]string{}
	err := eachRow(ctx, conn, "SHOW "+kind+" WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')", func() {
		values[strings.ToLower(name)] = value
	}, &name, &value)
	return values, err
}

// know returns what statements depend on, and finds that out on the first connection.
func (s *store) know(ctx context.Context, conn *sql.Conn) (*server, error) {
	if known := s.server.Load(); known != nil {
		return known, nil
	}
	read, err := variables(ctx, conn, "GLOBAL VARIABLES", facts)
	if err != nil {
		return nil, err
	}
	if err := refusal(read); err != nil {
		return nil, err
	}
	k := &server{version: read["version"], mariaDB: isMariaDB(read["version"]), galera: isOn(read["wsrep_on"]), name: s.config.table,
		database: s.config.database, snapshots: read["innodb_snapshot_isolation"] != ""}
	if k.database == "" {
		var database sql.NullString
		if err := eachRow(ctx, conn, "SELECT DATABASE()", func() {}, &database); err != nil {
			return nil, err
		}
		if !database.Valid {
			return nil, driver.Invalid("database", "of the connection", "set: use WithTable, or name one in the data source")
		}
		if k.database = database.String; checkDatabase(k.database) != nil {
			return nil, checkDatabase(k.database)
		}
	}
	k.table = "`" + k.database + "`.`" + k.name + "`"
	s.survives.Store(k.galera && read["innodb_flush_log_at_trx_commit"] == "1")
	s.server.CompareAndSwap(nil, k)
	return s.server.Load(), nil
}

func isOn(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

var versionNumbers = regexp.MustCompile(`^(\d+)\.(\d+)`)

// refusal returns why a server cannot keep locks, or nil.
func refusal(read map[string]string) error {
	version := read["version"]
	product, oldest := "MySQL", 800
	if isMariaDB(version) {
		product, oldest = "MariaDB", 1006
	}
	numbers := versionNumbers.FindStringSubmatch(version)
	if numbers == nil {
		return driver.Invalid("server", "of the version "+driver.Quote(version), "MySQL or MariaDB")
	}
	major, _ := strconv.Atoi(numbers[1])
	minor, _ := strconv.Atoi(numbers[2])
	switch {
	case strings.Contains(version, "TiDB"):
		return driver.Invalid("server", "TiDB", "MySQL or MariaDB, since TiDB takes no shared lock on which a guard could rely")
	case major*100+minor < oldest:
		return driver.Invalid("server", fmt.Sprintf("%s %d.%d", product, major, minor), "MySQL 8.0 or later, or MariaDB 10.6 or later")
	case isOn(read["log_bin"]) && read["binlog_format"] == "STATEMENT":
		// A replica would judge the conditions of the statements by its own settings, and keep the old value.
		return driver.Denied(errors.New("binlog_format is STATEMENT: replicas would not have the locks; set it to ROW or MIXED"))
	}
	return nil
}

// clock is the server's time in microseconds since 1970. It is that at which the statement began, in UTC, whatever time zone the session
// has: a local time, such as SYSDATE, goes back in autumn. It does not count a wait for a row: the value was read before that, and leases
// begin there.
const clock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// takesWrites is the condition that a server is no replica. read_only is a number or a word.
const takesWrites = "CONCAT(@@global.read_only) IN ('0', 'OFF') AND @@global.innodb_read_only = 0"

// commits is the condition that a session commits each statement. MySQL does not say whether a transaction is open.
func (k *server) commits() string {
	if k.mariaDB {
		return "@@autocommit = 1 AND @@in_transaction = 0"
	}
	return "@@autocommit = 1"
}

// writable is the condition of all writes. Without it, a user with a right such as SUPER would write on a replica, and a session without
// autocommit, or with an open transaction, would keep the write to itself.
//
// Promise 1: another holder could not see what is written.
func (k *server) writable() string { return k.commits() + " AND " + takesWrites }

// manners are the columns that say whether a session can be believed.
func (k *server) manners() string {
	isolation, waits := "@@transaction_isolation", "1"
	if k.mariaDB {
		isolation = "@@tx_isolation"
	}
	if k.galera {
		waits = "@@wsrep_sync_wait & 1"
	}
	return takesWrites + ", @@autocommit, " + k.commits() + ", " + isolation + ", " + waits
}

// behaviour has the values of manners.
type behaviour struct {
	writes, autocommit, commits, waits bool
	isolation                          string
}

func (b *behaviour) columns() []any {
	return []any{&b.writes, &b.autocommit, &b.commits, &b.isolation, &b.waits}
}

var (
	errReadOnly = errors.New("the server is read-only, as a replica is, or a primary during a fail-over, or a Galera node without its cluster")
	errOpen     = errors.New("another part of the program has left a transaction open: give the locks a pool of their own")
)

// refusal returns why a session cannot be believed, or nil. A Locker that only reads may do so on a replica.
func (b *behaviour) refusal(onlyReads bool) error {
	switch {
	case !b.writes && !onlyReads:
		return errReadOnly
	case !b.autocommit:
		return driver.Denied(errors.New("autocommit is off: set autocommit=1 for the connections of the locks"))
	case !b.commits:
		return errOpen
	case b.isolation == "READ-UNCOMMITTED":
		return driver.Denied(errors.New("the isolation level is READ UNCOMMITTED: set another one for the connections of the locks"))
	case !b.waits && !onlyReads:
		return driver.Denied(errors.New("a node of this cluster does not wait for the writes of others: set wsrep_sync_wait=1 on all nodes"))
	}
	return nil
}

// reads begins a statement that reads. On a node of a Galera cluster it waits for what others have written before.
func (k *server) reads() string {
	if k.galera && k.mariaDB {
		return "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT "
	}
	return "SELECT "
}

// guardChange begins the statement of a guard on a Galera cluster. It changes the present row, also if that was renewed since the
// transaction's snapshot.
func (k *server) guardChange() string {
	update := "UPDATE " + k.table + " SET written = written + 1"
	switch {
	case !k.galera:
		return ""
	case k.snapshots:
		return "SET STATEMENT innodb_snapshot_isolation = OFF FOR " + update
	}
	return update
}
