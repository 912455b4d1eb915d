package mysql

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// examine returns what the check of a server finds, by subject; of several findings the worst.
func examine(t *testing.T, rawURL string) map[string]driver.Finding {
	t.Helper()
	l, err := driver.OpenForCheck(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l.(*Locker))
	found := map[string]driver.Finding{}
	if err := l.Capabilities().Checker.Check(t.Context(), func(f driver.Finding) {
		if f.Level >= found[f.Subject].Level {
			found[f.Subject] = f
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func wantFinding(t *testing.T, found map[string]driver.Finding, subject string, level driver.Level, text string) {
	t.Helper()
	f := found[subject]
	if f.Detail == "" || f.Level != level || !strings.Contains(f.Detail, text) || level > driver.LevelUnchecked && f.Remedy == "" {
		t.Errorf("%s: %v %q, remedy %q; want %v %q", subject, f.Level, f.Detail, f.Remedy, level, text)
	}
}

// The grade follows from the set-up.
func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("a single server", func(t *testing.T) {
		t.Parallel()
		s := mysqltest.Start(t, mysqltest.Options{})
		found := examine(t, s.URL())
		wantFinding(t, found, subjectServer, driver.LevelOK, "MariaDB")
		wantFinding(t, found, subjectPrimary, driver.LevelOK, "takes writes")
		wantFinding(t, found, subjectDurability, driver.LevelOK, "flushed")
		wantFinding(t, found, subjectReplication, driver.LevelUnchecked, "not known")
		wantFinding(t, found, subjectGrade, driver.LevelOK, protectsData)
		wantFinding(t, found, subjectTable, driver.LevelOK, "there is no table app.holdfast_locks")
		openAt(t, s.URL())
		found = examine(t, s.AdminURL())
		wantFinding(t, found, subjectReplication, driver.LevelOK, "no binary log")
		server, replication := found[subjectServer].Server, found[subjectReplication].Server
		if !strings.Contains(server, "MariaDB") || replication != "no replication" {
			t.Errorf("the server is %q, %q", server, replication)
		}
		wantFinding(t, found, subjectTable, driver.LevelOK, "has what locks need")
		wantFinding(t, found, subjectRights, driver.LevelOK, "may read and write")
		wantFinding(t, found, subjectClock, driver.LevelOK, "")
		wantFinding(t, found, "conditional writes", driver.LevelOK, "rounds")
		admin := pool(t, s.AdminURL())
		run(t, admin, "UPDATE holdfast_locks SET written = written + 12600000000 WHERE name = '"+identityKey+"'")
		wantFinding(t, examine(t, s.URL()), subjectClock, driver.LevelDoubtful, " 3h")
		wantFinding(t, examine(t, makeUser(t, s, "SELECT")), subjectRights, driver.LevelWrong, "denied to the user")
		run(t, admin, "DROP TABLE holdfast_locks", "CREATE TABLE holdfast_locks (a int) ENGINE=MyISAM")
		wantFinding(t, examine(t, s.URL()), subjectTable, driver.LevelWrong, "MyISAM")
		run(t, admin, "SET GLOBAL read_only = ON")
		found = examine(t, s.URL())
		wantFinding(t, found, subjectPrimary, driver.LevelWrong, "read-only")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		wantFinding(t, examine(t, s.URL()), subjectServer, driver.LevelWrong, "refused")
	})
	t.Run("not durable", func(t *testing.T) {
		t.Parallel()
		s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--innodb-flush-log-at-trx-commit=2"}})
		found := examine(t, s.URL())
		wantFinding(t, found, subjectDurability, driver.LevelDoubtful, "innodb_flush_log_at_trx_commit is 2")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
	})
	t.Run("replication", func(t *testing.T) {
		t.Parallel()
		primary, replica := startPair(t)
		wantFinding(t, examine(t, replica.AdminURL()), subjectPrimary, driver.LevelWrong, "read-only")
		found := map[string]driver.Finding{}
		eventually(t, "the replica is not connected", func() bool {
			found = examine(t, primary.AdminURL())
			return strings.Contains(found[subjectGrade].Detail, savesWork)
		})
		wantFinding(t, found, subjectReplication, driver.LevelDoubtful, "replication is asynchronous")
		run(t, pool(t, primary.AdminURL()), "SET GLOBAL rpl_semi_sync_master_enabled = ON", "SET GLOBAL sync_binlog = 0")
		run(t, pool(t, replica.AdminURL()), "SET GLOBAL rpl_semi_sync_slave_enabled = ON", "STOP SLAVE", "START SLAVE")
		eventually(t, "no replica confirms", func() bool {
			found = examine(t, primary.AdminURL())
			return strings.Contains(found[subjectReplication].Detail, "AFTER_COMMIT")
		})
		wantFinding(t, found, subjectDurability, driver.LevelDoubtful, "sync_binlog is 0")
		run(t, pool(t, primary.AdminURL()), "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC", "SET GLOBAL sync_binlog = 1")
		found = examine(t, primary.AdminURL())
		wantFinding(t, found, subjectDurability, driver.LevelOK, "flushed")
		wantFinding(t, found, subjectReplication, driver.LevelDoubtful, "after 10000 ms")
		wantFinding(t, found, subjectGrade, driver.LevelOK, "becomes asynchronous")
		both := mysqltest.At(replica.Addr() + "," + primary.Addr())
		wantFinding(t, examine(t, both), subjectHosts, driver.LevelOK, replica.Addr()+" (read-only), "+primary.Addr()+" (takes writes)")
		run(t, pool(t, replica.AdminURL()), "SET GLOBAL read_only = OFF")
		wantFinding(t, examine(t, both), subjectHosts, driver.LevelWrong, "several servers take writes")
		found = examine(t, replica.AdminURL())
		wantFinding(t, found, subjectReplication, driver.LevelDoubtful, "receives those of another server")
		wantFinding(t, found, subjectGrade, driver.LevelOK, "two servers may take writes")
		if err := replica.Kill(); err != nil {
			t.Fatal(err)
		}
		wantFinding(t, examine(t, both), subjectHosts, driver.LevelDoubtful, "does not answer")
	})
	t.Run("statements in the binary log", func(t *testing.T) {
		t.Parallel()
		s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--binlog-format=STATEMENT"}})
		wantFinding(t, examine(t, s.URL()), subjectServer, driver.LevelWrong, "binlog_format is STATEMENT")
	})
}

// Old servers are refused, and new ones are not.
func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"8.0.36": true, "8.4.3-cluster": true, "9.1.0": true, "5.7.44-log": false,
		"10.5.23-MariaDB": false, "10.6.0-MariaDB": true, "10.11.19-MariaDB-0+deb12u1-log": true,
		"11.4.2-MariaDB": true, "12.0.1-MariaDB": true, "": false, "x": false,
		"8.0.11-TiDB-v8.5.1": false} {
		if err := refusal(map[string]string{"version": version}); (err == nil) != want {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// What statements depend on follows from the server.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server server
		reads  string
		has    string
	}{
		{server{}, "SELECT ", "@@transaction_isolation, 1"},
		{server{mariaDB: true}, "SELECT ", "@@tx_isolation, 1"},
		{server{galera: true}, "SELECT ", "@@transaction_isolation, @@wsrep_sync_wait & 1"},
		{server{mariaDB: true, galera: true}, "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT ", "@@tx_isolation, @@wsrep_sync_wait & 1"},
	} {
		if got := c.server.reads(); got != c.reads || !strings.HasSuffix(c.server.manners(), c.has) {
			t.Errorf("%+v: %q, %q", c.server, got, c.server.manners())
		}
		for _, condition := range []string{"@@autocommit = 1", "@@in_transaction = 0", "@@global.read_only", "@@global.innodb_read_only = 0"} {
			want := condition != "@@in_transaction = 0" || c.server.mariaDB // MySQL has no such variable
			for _, statement := range []string{c.server.update("k", nil, 1, "00"), c.server.insert("k", nil, 1, "id")} {
				if strings.Contains(statement, condition) != want {
					t.Errorf("%+v: %s, want %q: %v", c.server, statement, condition, want)
				}
			}
		}
	}
}
