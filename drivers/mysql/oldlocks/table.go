package oldlocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// server is what the statements about a table depend on. It is read once, and is the same for all servers that can replace one another.
type server struct {
	prefix     string // begins each statement
	inZone     string // the condition that times have one meaning for all sessions
	waits      string // the condition that the server knows what others have written
	timestamps bool   // the times are of the type TIMESTAMP
	maxName    int
	nameUnit   string
	maxOwner   int // how much of an owner is written
}

// commits is the condition that a session commits each statement. MariaDB alone says whether a transaction is open, and reads that comment.
const commits = "@@autocommit = 1 /*M! AND @@in_transaction = 0 */"

// inUTC is the condition that the session and the server are in UTC, in winter and in summer. The server's zone is that of the other
// programs, which set none.
const inUTC = "@@session.time_zone = @@global.time_zone AND FROM_UNIXTIME(1767225600) = '2026-01-01 00:00:00' " +
	"AND FROM_UNIXTIME(1782864000) = '2026-07-01 00:00:00'"

// zoneNames is what an error says of the time zones.
const zoneNames = "CONCAT(@@session.time_zone, ' in the session and ', @@global.time_zone, ' on the server, whose system has ', " +
	"@@system_time_zone)"

// usable is the condition of all writes.
//
// Promise 1: otherwise others would not see what is written, or would read another time.
func (s *server) usable() string {
	return takesWrites + " AND " + commits + " AND " + s.inZone + " AND " + s.waits
}

// On a node of a Galera cluster each statement waits for what others have written before: a read, and a write that judges a row.
const (
	waitPrefix = "SET STATEMENT wsrep_sync_wait = 3 FOR "
	waitIsSet  = "(@@wsrep_sync_wait & 3) = 3"
)

// connect returns a connection, and what statements depend on.
func (l *ShedLock) connect(ctx context.Context) (*sql.Conn, *server, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, nil, l.failed(ctx, err)
	}
	s, err := l.know(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, nil, l.failed(ctx, err)
	}
	return conn, s, nil
}

func (l *ShedLock) know(ctx context.Context, conn *sql.Conn) (*server, error) {
	if known := l.known.Load(); known != nil {
		return known, nil
	}
	variables, err := firstTwo(ctx, conn, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'wsrep_on', 'log_bin', 'binlog_format')")
	if err != nil {
		return nil, err
	}
	types, err := firstTwo(ctx, conn, "SHOW COLUMNS FROM "+l.table)
	if err != nil {
		return nil, err
	}
	s, err := newServer(variables, types, l.sessionsInUTC)
	if err != nil {
		return nil, driver.Denied(err)
	}
	l.known.Store(s)
	return s, nil
}

// firstTwo reads a map from the first column of an answer to the second.
func firstTwo(ctx context.Context, conn *sql.Conn, statement string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, to := make([]sql.RawBytes, max(2, len(columns))), make([]any, len(columns))
	for i := range to {
		to[i] = &values[i]
	}
	read := map[string]string{}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		read[strings.ToLower(string(values[0]))] = string(values[1])
	}
	return read, rows.Err()
}

func isOn(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

// columnType is a type as SHOW COLUMNS has it.
var columnType = regexp.MustCompile(`^([a-z]+)(?:\((\d+)\))?`)

// newServer returns what statements depend on, or why a server or a table cannot have the locks.
func newServer(variables, types map[string]string, sessionsInUTC bool) (*server, error) {
	if isOn(variables["log_bin"]) && variables["binlog_format"] == "STATEMENT" {
		// A replica would judge the conditions of the statements by its own settings, and keep the old row.
		return nil, errors.New("binlog_format is STATEMENT: replicas would not have the locks; set it to ROW or MIXED")
	}
	s := &server{inZone: "TRUE", waits: "TRUE"}
	if isOn(variables["wsrep_on"]) {
		if strings.Contains(variables["version"], "MariaDB") {
			s.prefix = waitPrefix
		} else {
			s.waits = waitIsSet
		}
	}
	for _, column := range []string{"lock_until", "locked_at"} {
		has := types[column]
		switch kind := columnType.FindString(has); {
		case has == "":
			return nil, missing(column)
		case strings.HasPrefix(kind, "datetime"):
		case !strings.HasPrefix(kind, "timestamp"):
			return nil, fmt.Errorf("the column %s has the type %s: change it to DATETIME(3)", column, has)
		case !sessionsInUTC:
			return nil, fmt.Errorf("the column %s has the type %s, and its times depend on the time_zone of each session: set "+
				"Table.SessionsInUTC if the server and all sessions of the other programs are in UTC; otherwise change lock_until and locked_at to "+
				"DATETIME(3) while no task runs", column, has)
		default:
			s.timestamps, s.inZone = true, inUTC
		}
	}
	var err error
	if s.maxName, s.nameUnit, err = length("name", types, 1); err != nil {
		return nil, err
	}
	// Promise 1: a session that is not strict cuts what is too long, and a row without its mark would be nobody's.
	most, _, err := length("locked_by", types, markLength)
	s.maxOwner = min(maxOwner, most-markLength)
	return s, err
}

func missing(column string) error {
	return fmt.Errorf("the table has no column %s that this user may see: it is not one of ShedLock", column)
}

// markLength is how long a mark is.
const markLength = len(" ") + 32

// length is how much text a column can have.
func length(column string, types map[string]string, least int) (n int, unit string, err error) {
	unit = "characters"
	has := types[column]
	if has == "" {
		return 0, unit, missing(column)
	}
	parts := columnType.FindStringSubmatch(has)
	if parts == nil {
		parts = []string{has, has, ""}
	}
	switch parts[1] {
	case "varbinary":
		unit = "bytes"
		fallthrough
	case "varchar", "char":
		n, err = strconv.Atoi(parts[2])
	case "tinytext":
		n = math.MaxUint8
	case "text", "mediumtext", "longtext":
		n = math.MaxUint16
	}
	if err != nil || n < least {
		err = fmt.Errorf("the column %s has the type %s, and needs at least %d characters: change it to VARCHAR(255)", column, has, least)
	}
	return n, unit, err
}

// checkName refuses a name that the column cannot have.
func (s *server) checkName(name string) error {
	n := len(name)
	if s.nameUnit == "characters" {
		n = len([]rune(name))
	}
	if n > s.maxName {
		return driver.Invalid("name of the old lock", fmt.Sprintf("%s, of %d %s", driver.Quote(name), n, s.nameUnit),
			fmt.Sprintf("at most %d %s, as in the column name of the table", s.maxName, s.nameUnit))
	}
	return nil
}
