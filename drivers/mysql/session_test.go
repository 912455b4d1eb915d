package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// Values of any bytes and of the greatest length stay as they are, whatever the session's mode and character set are.
func TestAnyMode(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	other := openAt(t, at)
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("other-", i))
		if _, err := other.TryAcquire(t.Context(), request(names[i], "b")); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []string{"", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "TRADITIONAL", "ANSI", "ORACLE,EMPTY_STRING_IS_NULL"} {
		db := pool(t, at, func(c *gomysql.Config) {
			c.Params = map[string]string{"sql_mode": "'" + mode + "'", "character_set_client": "gbk", "tx_isolation": "'SERIALIZABLE'",
				"sql_select_limit": "10", "sql_safe_updates": "1", "time_zone": "'+13:00'"}
		})
		name := strings.TrimPrefix(at[strings.Index(at, "table="):], "table=")
		l, err := New(t.Context(), db, WithTable("", name))
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, l)
		req := request("n'\"\\`%_\x00ü¿'", "id "+mode)
		req.Owner, req.Data = "'\\", bytes.Repeat([]byte{0, '\'', '\\', 0xbf, 0x27, '"'}, 10922)
		lease, err := l.TryAcquire(t.Context(), req)
		if err == nil {
			lease, err = l.Renew(t.Context(), lease)
		}
		r, inspected := l.Inspect(t.Context(), req.Name)
		data, _, read := l.ReadData(t.Context(), req.Name)
		if err := errors.Join(err, inspected, read); err != nil || r.Owner != req.Owner || !bytes.Equal(data, req.Data) {
			t.Errorf("%q: %v, %q, %d bytes", mode, err, r.Owner, len(data))
		}
		records, errs := l.InspectBatch(t.Context(), "", names)
		for i, r := range records {
			if errs[i] != nil || r.State != driver.StateHeld {
				t.Errorf("%q: %v, %v", mode, r, errs[i])
			}
		}
		listed := 0
		for r, err := range l.List(t.Context(), "") {
			if listed++; err != nil {
				t.Error(r, err)
			}
		}
		if listed < len(names)+1 {
			t.Errorf("%q: %d locks are listed", mode, listed)
		}
		released(t, l, lease, err)
	}
}

// A session that keeps writes to itself, or reads those of others too early, is refused, and nothing was written.
func TestUnusableSessions(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	s := storeAt(t, at)
	for param, value := range map[string]string{"autocommit": "0", "tx_isolation": "'READ-UNCOMMITTED'"} {
		db := pool(t, at, func(c *gomysql.Config) { c.Params = map[string]string{param: value} })
		if _, err := New(t.Context(), db, WithTable("", s.config.table)); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("%s: %v", param, err)
		}
	}
	other := &store{config: s.config, db: pool(t, at, func(c *gomysql.Config) { c.Params = map[string]string{"autocommit": "0"} })}
	if _, err := other.Put(t.Context(), "key", []byte("value"), ""); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a write without autocommit: %v", err)
	}
	if v, err := s.Get(t.Context(), "key"); err != nil || v.Version != "" {
		t.Errorf("%+v, %v", v, err)
	}
}

// A connection on which a transaction was left open is refused, and nothing is written into that.
func TestTransactionLeftOpen(t *testing.T) {
	t.Parallel()
	s := storeAt(t, mysqltest.URL(t))
	first, err := s.Put(t.Context(), "key", []byte("first"), "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "START TRANSACTION"); err != nil {
		t.Fatal(err)
	}
	c := session{conn: conn, server: s.server.Load()}
	result, err := c.exec(t.Context(), c.update("key", []byte("second"), 1, first.Version))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); n != 0 || err != nil {
		t.Errorf("%d rows were written in a transaction that nobody commits, %v", n, err)
	}
	if _, err := c.read(t.Context(), s, "NULL, NULL, NULL"); !errors.Is(err, errOpen) || driver.Lasting(err) {
		t.Errorf("a read in a transaction: %v", err)
	}
}

// With autocommit off at the servers, the error says so, whatever the number of hosts is, and lasts.
func TestServersWithoutAutocommit(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Start(t, mysqltest.Options{Args: []string{"--autocommit=0"}}).Addr()
	for _, hosts := range []string{addr, addr + "," + addr} {
		_, err := Open(t.Context(), mysqltest.At(hosts))
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "autocommit is off") {
			t.Errorf("%s: %v", hosts, err)
		}
	}
}

// A trigger that writes elsewhere changes neither the answer to a write nor its time.
func TestTrigger(t *testing.T) {
	t.Parallel()
	s := storeAt(t, mysqltest.URL(t))
	table := s.server.Load().table
	audit := strings.TrimSuffix(table, "`") + "_audit`"
	run(t, s.db, "CREATE TABLE "+audit+" (id bigint AUTO_INCREMENT PRIMARY KEY, name varbinary(255))")
	for _, event := range []string{"INSERT", "UPDATE"} {
		run(t, s.db, "CREATE TRIGGER "+strings.TrimSuffix(audit, "`")+event+"` AFTER "+event+" ON "+table+" FOR EACH ROW INSERT INTO "+audit+
			" (name) VALUES (NEW.name)")
	}
	version := ""
	for i := range 2 {
		before, err := s.Get(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		done, err := s.Put(t.Context(), "key", []byte{byte(i)}, version)
		// MySQL and MariaDB leave the time out then, and renewals read it first.
		if err != nil || !done.Now.IsZero() && (done.Now.Before(before.Now) || done.Now.Sub(before.Now) > time.Minute) {
			t.Fatalf("%v after %v, %v", done, before.Now, err)
		}
		version = done.Version
	}
}

// A session whose reads may be old is refused, except for looking.
func TestRefusal(t *testing.T) {
	t.Parallel()
	good := behaviour{writes: true, autocommit: true, commits: true, waits: true, isolation: "READ-COMMITTED"}
	for what, c := range map[string]struct {
		change         func(*behaviour)
		denied, reader bool // the error lasts; a Locker that only reads is refused, too
	}{
		"read-only":          {func(b *behaviour) { b.writes = false }, false, false},
		"no autocommit":      {func(b *behaviour) { b.autocommit, b.commits = false, false }, true, true},
		"open transaction":   {func(b *behaviour) { b.commits = false }, false, true},
		"read uncommitted":   {func(b *behaviour) { b.isolation = "READ-UNCOMMITTED" }, true, true},
		"no wsrep_sync_wait": {func(b *behaviour) { b.waits = false }, true, false},
	} {
		bad := good
		c.change(&bad)
		if err := bad.refusal(false); err == nil || driver.Lasting(err) != c.denied {
			t.Errorf("%s: %v", what, err)
		}
		if err := bad.refusal(true); (err != nil) != c.reader {
			t.Errorf("%s, for reading: %v", what, err)
		}
	}
	if err := good.refusal(false); err != nil {
		t.Error(err)
	}
}
