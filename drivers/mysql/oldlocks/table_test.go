package oldlocks_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// instants is a table whose times are the same for all sessions.
const instants = "name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, " +
	"locked_by VARCHAR(255) NOT NULL"

// wantRefused checks that no call of a ShedLock is made, that its error says so much, and that the table stays empty.
func wantRefused(t *testing.T, db *sql.DB, table string, l *oldlocks.ShedLock, texts ...string) {
	t.Helper()
	for what, err := range map[string]error{
		"acquire": l.Acquire(t.Context(), claim("job", "a")), "renew": l.Renew(t.Context(), claim("job", "a")),
		"release": l.Release(t.Context(), claim("job", "a")),
	} {
		if !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: %v, want ErrDenied", what, err)
			continue
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want an error with %q", what, err, text)
			}
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// Times of the type TIMESTAMP are others for a session with another time zone: such a table needs a promise that there is none.
func TestTimestampsNeedAPromise(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	for column, columns := range map[string]string{
		"lock_until": strings.Replace(instants, "lock_until DATETIME(3)", "lock_until TIMESTAMP(3)", 1),
		"locked_at":  strings.Replace(instants, "locked_at DATETIME(3)", "locked_at TIMESTAMP(3)", 1),
	} {
		table := newTable(t, db, columns)
		l, err := oldlocks.NewShedLock(db, oldlocks.Table{Name: table})
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, db, table, l, table, "column "+column, "timestamp(3)", "Table.SessionsInUTC", "DATETIME(3)")
	}
}

// Times of the type DATETIME are the same for all sessions: old and migrated programs exclude each other in any zones, without a promise.
func TestSessionsInOtherZones(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	east := pool(t, addr, variable("time_zone", "'+05:00'"))
	old := shedLock{db: pool(t, addr, variable("time_zone", "'-07:00'")), table: newTable(t, east, instants), host: "host", dbTime: true}
	l, err := oldlocks.NewShedLock(east, oldlocks.Table{Name: old.table})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := old.lock(t.Context(), "old", time.Hour); !got || err != nil {
		t.Fatal(got, err)
	}
	if err := l.Acquire(t.Context(), claim("old", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside the old program: %v", err)
	}
	if err := errors.Join(l.Acquire(t.Context(), claim("ours", "a")), l.Renew(t.Context(), claim("ours", "a"))); err != nil {
		t.Fatal(err)
	}
	if got, err := old.lock(t.Context(), "ours", time.Hour); got || err != nil {
		t.Errorf("the old program got the lock beside the migrated one: %v", err)
	}
	if err := l.Release(t.Context(), claim("ours", "a")); err != nil {
		t.Fatal(err)
	}
	if got, err := old.lock(t.Context(), "ours", time.Hour); !got || err != nil {
		t.Errorf("the old program after the release: %v, %v", got, err)
	}
}

// A server whose replicas would not have the rows is refused, and so are TIMESTAMPs on a server that is not in UTC.
func TestSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--binlog-format=STATEMENT", "--default-time-zone=+02:00"}})
	admin := poolOf(t, mysqltest.AdminUser+":"+mysqltest.AdminPassword+"@tcp("+s.Addr()+")/"+mysqltest.Database)
	dates, stamps := newTable(t, admin, instants), newTable(t, admin, readme)
	wantRefused(t, admin, dates, newShedLock(t, pool(t, s.Addr()), dates, 0), "binlog_format is STATEMENT", "ROW")
	run(t, admin, "SET GLOBAL binlog_format = ROW")
	wantRefused(t, admin, stamps, newShedLock(t, pool(t, s.Addr()), stamps, 0), "TIMESTAMP", "+02:00 on the server", "default_time_zone",
		"DATETIME(3)")
	l := newShedLock(t, pool(t, s.Addr()), dates, 0)
	if err := errors.Join(l.Acquire(t.Context(), claim("job", "a")), l.Renew(t.Context(), claim("job", "a")),
		l.Release(t.Context(), claim("job", "a"))); err != nil {
		t.Error(err)
	}
}

// A column that is too short for the mark is refused by its name, also by a server that would cut the mark. A longer one has a part of the
// owner.
func TestShortColumns(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	for _, mode := range []string{"''", "'STRICT_ALL_TABLES'"} {
		db := pool(t, addr, variable("sql_mode", mode))
		short := newTable(t, db, strings.Replace(instants, "VARCHAR(255)", "VARCHAR(32)", 1))
		wantRefused(t, db, short, newShedLock(t, db, short, 0), short, "column locked_by", "varchar(32)", "at least 33", "VARCHAR(255)")
		number := newTable(t, db, strings.Replace(instants, "locked_by VARCHAR(255)", "locked_by BIGINT", 1))
		wantRefused(t, db, number, newShedLock(t, db, number, 0), "column locked_by", "bigint")
		text := newTable(t, db, strings.Replace(instants, "lock_until DATETIME(3)", "lock_until VARCHAR(40)", 1))
		wantRefused(t, db, text, newShedLock(t, db, text, 0), "column lock_until", "varchar(40)", "DATETIME(3)")
		l := newShedLock(t, db, newTable(t, db, strings.Replace(instants, "VARCHAR(255)", "VARCHAR(40)", 1)), 0)
		c := claim("job", "a")
		c.Owner = strings.Repeat("o", 100)
		if err := errors.Join(l.Acquire(t.Context(), c), l.Renew(t.Context(), c)); err != nil {
			t.Fatal(err)
		}
		var held *driver.HeldError
		if err := l.Acquire(t.Context(), claim("job", "b")); !errors.As(err, &held) || held.Record.Owner != "ooooooo" {
			t.Errorf("another claim: %v", err)
		}
		bytes := newShedLock(t, db, newTable(t, db, strings.Replace(instants, "name VARCHAR(64)", "name VARBINARY(5)", 1)), 0)
		if err := bytes.Acquire(t.Context(), claim("ééé", "a")); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "of 6 bytes is invalid: must be at most 5 bytes") {
			t.Errorf("a name of 6 bytes: %v", err)
		}
	}
}

// A TIMESTAMP ends in 2038: a lease that would end later is refused, and one that is held stays as it is. A server that is not strict would
// write zeros, which look like the end of the lease.
func TestTimestampsEnd(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	for _, mode := range []string{"''", "'STRICT_ALL_TABLES'"} {
		// The clock of these sessions is a day before the end.
		late := pool(t, addr, variable("sql_mode", mode), variable("timestamp", "2147400000"))
		stamps := newShedLock(t, late, newTable(t, late, readme), 0)
		if most := stamps.Info().Limits.MaxTTL; most <= 0 || most > 366*24*time.Hour {
			t.Errorf("the greatest TTL is %v", most)
		}
		hour, day := claim("job", "a"), claim("job", "a")
		hour.TTL, day.TTL = time.Hour, 24*time.Hour
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "lock_until has the type TIMESTAMP, which ends at 2038-01-19") ||
				!strings.Contains(err.Error(), "DATETIME(3)") {
				t.Errorf("%s until after the end: %v", what, err)
			}
		}
		refused("acquire", stamps.Acquire(t.Context(), day))
		if err := stamps.Acquire(t.Context(), hour); err != nil {
			t.Fatal(err)
		}
		refused("renew", stamps.Renew(t.Context(), day))
		if err := stamps.Acquire(t.Context(), claim("job", "b")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside the holder: %v", err)
		}
		if err := errors.Join(stamps.Renew(t.Context(), hour), stamps.Release(t.Context(), day)); err != nil {
			t.Error(err)
		}
		dates := newShedLock(t, late, newTable(t, late, instants), 0)
		if err := errors.Join(dates.Acquire(t.Context(), day), dates.Renew(t.Context(), day), dates.Release(t.Context(), day)); err != nil {
			t.Errorf("with DATETIME: %v", err)
		}
	}
}

// On a Galera cluster calls go to any node. One that applies writes late still renews and releases what another node has granted.
func TestLateNodeOfGalera(t *testing.T) {
	t.Parallel()
	nodes := mysqltest.StartGalera(t, 2)
	first, late := pool(t, nodes[0].Addr()), pool(t, nodes[1].Addr())
	for _, db := range []*sql.DB{first, late} {
		eventually(t, "a node is not ready", func() bool {
			var name, size, ready string
			return db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_cluster_size'").Scan(&name, &size) == nil && size == "2" &&
				db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_ready'").Scan(&name, &ready) == nil && ready == "ON"
		})
	}
	// Rows of a table without a key are searched one by one where they are applied.
	run(t, first, "CREATE TABLE slow (a int) ENGINE=InnoDB", "INSERT INTO slow SELECT seq FROM seq_1_to_3000")
	table := newTable(t, first, instants)
	l, other := newShedLock(t, first, table, 0), newShedLock(t, late, table, 0)
	eventually(t, "the late node does not have the table", func() bool { return other.Release(t.Context(), claim("job", "a")) == nil })
	// behind has the other node busy, and then makes a call on the first.
	behind := func(sign string, call func() error) {
		t.Helper()
		run(t, first, "UPDATE slow SET a = "+sign+"ABS(a)")
		if err := call(); err != nil {
			t.Fatal(err)
		}
		var applied int
		if err := late.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM slow WHERE a = "+sign+"1").Scan(&applied); err != nil || applied != 0 {
			t.Fatalf("the node is not late: %d, %v", applied, err)
		}
	}
	short, long := claim("job", "a"), claim("job", "a")
	short.TTL, long.TTL = time.Minute, time.Hour
	behind("-", func() error { return l.Acquire(t.Context(), short) })
	if err := other.Renew(t.Context(), long); err != nil {
		t.Errorf("a renewal on the late node: %v", err)
	}
	var minutes int
	err := late.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(6), lock_until) FROM "+table).Scan(&minutes)
	if err != nil || minutes < 50 {
		t.Errorf("after the renewal the lease ends in %d min, %v", minutes, err)
	}
	if err := l.Release(t.Context(), long); err != nil {
		t.Error(err)
	}
	behind("+", func() error { return l.Acquire(t.Context(), claim("job", "b")) })
	if err := other.Acquire(t.Context(), claim("job", "c")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside the holder, on the late node: %v", err)
	}
	behind("-", func() error { return l.Renew(t.Context(), claim("job", "b")) })
	if err := other.Release(t.Context(), claim("job", "b")); err != nil {
		t.Error(err)
	}
	eventually(t, "the lock that the late node has released is not free", func() bool {
		err := l.Acquire(t.Context(), claim("job", "d"))
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			t.Fatal(fmt.Errorf("after the release: %w", err))
		}
		return err == nil
	})
}
