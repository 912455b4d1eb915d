package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// startPair starts a primary and a replica of it.
func startPair(t *testing.T) (primary, replica *mysqltest.Server) {
	t.Helper()
	primary = mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--server-id=1", "--sync-binlog=1",
		"--gtid-domain-id=1"}})
	replica = mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-bin=binlog", "--server-id=2", "--log-slave-updates", "--read-only=ON",
		"--gtid-domain-id=2", "--slave-skip-errors=1050,1062,1396,1007"}})
	host, port, _ := net.SplitHostPort(primary.Addr())
	run(t, pool(t, replica.AdminURL()), "CHANGE MASTER TO MASTER_HOST='"+host+"', MASTER_PORT="+port+", MASTER_USER='"+mysqltest.AdminUser+
		"', MASTER_PASSWORD='"+mysqltest.AdminPassword+"', MASTER_CONNECT_RETRY=1", "START SLAVE")
	return primary, replica
}

// Of several hosts the one is used that takes writes, also after a fail-over, and by connections that were made before.
func TestHosts(t *testing.T) {
	t.Parallel()
	primary, replica := startPair(t)
	none := castest.NewProxy(t, primary.Addr())
	none.Set(castest.Refuse)
	at := func(hosts ...string) string { return mysqltest.At(strings.Join(hosts, ",")) }
	l := openAt(t, at(none.Addr(), replica.Addr(), primary.Addr()))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	reader := pool(t, replica.AdminURL())
	if lease, err = l.Renew(t.Context(), lease); err != nil { // an UPDATE reaches the replica, too
		t.Fatal(err)
	}
	value := func(server *mysqltest.Server) (value string) {
		_ = pool(t, server.AdminURL()).QueryRowContext(t.Context(), "SELECT value FROM holdfast_locks WHERE name = 'n'").Scan(&value)
		return value
	}
	eventually(t, "the replica has not got the lock", func() bool { return value(replica) == value(primary) })
	_, err = Open(t.Context(), at(none.Addr(), replica.Addr()))
	if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "no host takes writes") ||
		!strings.Contains(err.Error(), replica.Addr()+": the server is read-only") {
		t.Errorf("without a primary: %v", err)
	}
	wrong := strings.Replace(at(primary.Addr(), replica.Addr()), mysqltest.AppPassword, "secret-wrong", 1)
	if _, err := Open(t.Context(), wrong); !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong password on all hosts: %v", err)
	}
	// A planned fail-over: both servers go on answering.
	run(t, pool(t, primary.AdminURL()), "SET GLOBAL read_only = ON")
	run(t, reader, "DO MASTER_POS_WAIT('', 0, 0)", "STOP SLAVE", "SET GLOBAL read_only = OFF")
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token {
		t.Errorf("%v, %v", r, err)
	}
	var written [2]int64
	for i, server := range []*mysqltest.Server{primary, replica} {
		err := pool(t, server.AdminURL()).QueryRowContext(t.Context(), "SELECT written FROM holdfast_locks WHERE name = 'n'").Scan(&written[i])
		if err != nil {
			t.Fatal(err)
		}
	}
	if written[1] <= written[0] {
		t.Errorf("the lease was renewed on the old primary: %v", written)
	}
	// A crash of the new primary, with the old one as its successor.
	if err := replica.Kill(); err != nil {
		t.Fatal(err)
	}
	run(t, pool(t, primary.AdminURL()), "SET GLOBAL read_only = OFF")
	eventually(t, "nobody is granted a lock after the crash", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		lease, err := l.TryAcquire(ctx, request("other", "b"))
		released(t, l, lease, errors.Join(err, context.Canceled))
		return err == nil
	})
}

// An address that begins to lead to another server, whose table was made on its own, is noticed before anything is granted there.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	first, second := mysqltest.Start(t, mysqltest.Options{}), mysqltest.Start(t, mysqltest.Options{})
	openAt(t, second.URL())
	var target atomic.Pointer[string]
	leadTo := func(s *mysqltest.Server) { addr := s.Addr(); target.Store(&addr) }
	leadTo(first)
	gomysql.RegisterDialContext("switch", func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", *target.Load())
	})
	db := pool(t, first.URL(), func(c *gomysql.Config) { c.Net = "switch" })
	db.SetMaxIdleConns(0) // each call connects
	l, err := New(t.Context(), db, quiet)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	leadTo(second)
	for what, call := range map[string]func() error{
		"acquire": func() error { _, err := l.TryAcquire(t.Context(), request("m", "b")); return err },
		"renew":   func() error { _, err := l.Renew(t.Context(), lease); return err },
		"inspect": func() error { _, err := l.Inspect(t.Context(), "n"); return err },
	} {
		if err := call(); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "is not the one that this program has used") {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, pool(t, second.AdminURL()), "DELETE FROM holdfast_locks WHERE name = '"+identityKey+"'")
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a table without identity: %v", err)
	}
	leadTo(first)
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	released(t, l, lease, err)
}

// A lock is not granted in another server's table either if the connection that wrote leads there, and the one that read does not.
func TestOtherServerBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	first, second := mysqltest.Start(t, mysqltest.Options{}), mysqltest.Start(t, mysqltest.Options{})
	openAt(t, second.URL())
	var dials atomic.Int64
	addrs := []string{first.Addr(), first.Addr()}
	gomysql.RegisterDialContext("alternate", func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addrs[dials.Add(1)%2])
	})
	db := pool(t, first.URL(), func(c *gomysql.Config) { c.Net = "alternate" })
	db.SetMaxIdleConns(0) // each statement connects
	l, err := New(t.Context(), db, quiet)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	lease, err := l.TryAcquire(t.Context(), request("known", "a"))
	released(t, l, lease, err)
	addrs[1] = second.Addr()
	for i := range 2 { // one of them reads on the first, and writes on the second
		dials.Store(int64(i))
		if _, err := l.TryAcquire(t.Context(), request(fmt.Sprint("new", i), "b")); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("acquire: %v", err)
		}
	}
	var rows int
	err = pool(t, second.AdminURL()).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM holdfast_locks WHERE name LIKE 'new%'").Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d rows in the other table, %v", rows, err)
	}
}

// Each value of the parameter tls does what it says, and a client's certificate is used.
func TestTLS(t *testing.T) {
	t.Parallel()
	signs, strange := authority.New(t), authority.New(t)
	ca := signs.File
	cert, key := signs.Sign(t, "leaf")
	s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--ssl-ca=" + ca, "--ssl-cert=" + cert, "--ssl-key=" + key},
		SQL: []string{"CREATE USER IF NOT EXISTS certified REQUIRE X509;", "GRANT ALL ON app.* TO certified;"}})
	plain := mysqltest.Shared(t)
	encrypted := func(l *Locker) bool {
		var name, cipher string
		if err := l.store.db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil {
			t.Error(err)
		}
		return cipher != ""
	}
	for params, want := range map[string]bool{"": true, "tls=preferred": true, "tls=skip-verify": true, "tls=false": false,
		"tls=true&caFile=" + ca: true, "caFile=" + ca: true} {
		if l := openAt(t, with(s.URL(), params)); encrypted(l) != want {
			t.Errorf("%q: encrypted: %v", params, !want)
		}
	}
	if l := openAt(t, mysqltest.WithTable(plain.URL())); encrypted(l) {
		t.Error("a server without TLS encrypts")
	}
	certified := strings.Replace(s.URL(), mysqltest.AppUser+":"+mysqltest.AppPassword+"@", "certified@", 1)
	openAt(t, with(certified, "caFile="+ca, "certFile="+cert, "keyFile="+key))
	for what, at := range map[string]string{
		"not verified":            with(s.URL(), "tls=true"),
		"another authority":       with(s.URL(), "caFile="+strange.File),
		"another name":            strings.Replace(with(s.URL(), "caFile="+ca), "127.0.0.1", "localhost", 1),
		"no TLS":                  with(plain.URL(), "tls=true"),
		"no TLS, not verified":    with(plain.URL(), "tls=skip-verify"),
		"no client's certificate": with(certified, "caFile="+ca),
	} {
		if _, err := Open(t.Context(), at); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
