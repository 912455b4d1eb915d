package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// startGalera starts a cluster whose nodes are all ready.
func startGalera(t *testing.T, n int) []*mysqltest.Server {
	t.Helper()
	nodes := mysqltest.StartGalera(t, n)
	for _, node := range nodes {
		db := pool(t, node.AdminURL())
		eventually(t, "a node is not ready", func() bool {
			var name, size, ready string
			return db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_cluster_size'").Scan(&name, &size) == nil && size == fmt.Sprint(n) &&
				db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_ready'").Scan(&name, &ready) == nil && ready == "ON"
		})
	}
	return nodes
}

// The suite runs over a Galera cluster, each Locker on another node.
func TestGaleraConformance(t *testing.T) {
	serverprocess.Long(t, "starts three servers, and runs the whole suite once more")
	t.Parallel()
	nodes := startGalera(t, 3)
	admin := pool(t, nodes[0].AdminURL())
	var opened atomic.Int64
	lockertest.Run(t, lockertest.Config{
		New:     func(t *testing.T) driver.Locker { return openAt(t, nodes[opened.Add(1)%3].URL()) },
		Forget:  forgets(admin),
		Without: []string{"Damage", "Deny", "FailOver", "Stall"},
	})
}

// Clients on all nodes compete while a node is killed. No two hold the lock at once, no token falls, and a grant survives.
func TestGalera(t *testing.T) {
	serverprocess.Long(t, "starts three servers")
	t.Parallel()
	nodes := startGalera(t, 3)
	hosts := func(first int) string {
		return mysqltest.At(strings.Join([]string{nodes[first].Addr(), nodes[(first+1)%3].Addr(), nodes[(first+2)%3].Addr()}, ","))
	}
	l := openAt(t, hosts(0), WithCommandTimeout(time.Second))
	if info := l.Info(); info.Failover != driver.GrantsSurvive {
		t.Errorf("declares %v", info.Failover)
	}
	found := examine(t, hosts(1))
	wantFinding(t, found, subjectReplication, driver.LevelOK, "a Galera cluster of 3 nodes")
	wantFinding(t, found, subjectHosts, driver.LevelOK, "takes writes")
	wantFinding(t, found, subjectGrade, driver.LevelOK, protectsData)
	var lockers []driver.Locker
	for i := range 3 {
		lockers = append(lockers, openAt(t, hosts(i), WithCommandTimeout(time.Second)))
	}
	var survivor driver.Lease
	castest.Compete(t, castest.Competition{Lockers: lockers, TTL: 20 * time.Second, Faults: 1, Fault: func(int) (err error) {
		if survivor, err = l.TryAcquire(t.Context(), request("survivor", "a")); err != nil {
			return err
		}
		return nodes[0].Kill()
	}})
	eventually(t, "the lease is not renewed after the crash", func() bool {
		next, err := l.Renew(t.Context(), survivor)
		if errors.Is(err, driver.ErrLost) {
			t.Fatal(err)
		}
		return err == nil && next.Token == survivor.Token
	})
}

// The guard on one node keeps order with grants on another.
func TestGaleraGuard(t *testing.T) {
	serverprocess.Long(t, "starts two servers")
	t.Parallel()
	nodes := startGalera(t, 2)
	first, second := openAt(t, nodes[0].URL()), openAt(t, nodes[1].URL())
	db := pool(t, nodes[0].URL())
	run(t, db, "CREATE TABLE work (n bigint AUTO_INCREMENT PRIMARY KEY, token bigint) ENGINE=InnoDB")
	lease, err := first.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(first, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), fmt.Sprint("INSERT INTO work (token) VALUES (", lease.Token, ")")); err != nil {
		t.Fatal(err)
	}
	if err := g.lock(t.Context(), tx, lease); err != nil {
		t.Fatal(err)
	}
	if err := second.Release(t.Context(), lease); err != nil { // on the node itself it waits
		t.Fatal(err)
	}
	// The other node does not know of the transaction: the grant is done, and ends it.
	if _, err := second.TryAcquire(t.Context(), request("job", "b")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := outcome(tx.Commit()); err == nil || errors.Is(err, ErrInDoubt) {
		t.Errorf("a former holder commits on another node: %v", err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A guarded transaction never commits after a later grant, although its node applies that grant late.
func TestGaleraGuardOnALateNode(t *testing.T) {
	serverprocess.Long(t, "starts two servers, and waits for a node that is late")
	t.Parallel()
	nodes := startGalera(t, 2)
	first, second := openAt(t, nodes[0].URL()), openAt(t, nodes[1].URL())
	db, other := pool(t, nodes[0].URL()), pool(t, nodes[1].URL())
	// Rows of a table without a key are searched one by one where they are applied.
	run(t, db, "CREATE TABLE work (n bigint AUTO_INCREMENT PRIMARY KEY, token bigint) ENGINE=InnoDB",
		"CREATE TABLE slow (a int) ENGINE=InnoDB", "INSERT INTO slow SELECT seq FROM seq_1_to_6000")
	g, err := NewGuard(first, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := first.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	run(t, other, "UPDATE slow SET a = -a")
	next, err := second.TryAcquire(t.Context(), request("job", "b"))
	if err != nil {
		t.Fatal(err)
	}
	granted := time.Since(began)
	err = g.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprint("INSERT INTO work (token) VALUES (", lease.Token, ")"))
		return err
	})
	t.Logf("granted after %v, the guard ended after %v: %v", granted, time.Since(began), err)
	var n int
	if failed := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n); failed != nil || n != 0 || err == nil {
		t.Errorf("%d rows, %v, %v: token %d wrote after token %d was granted", n, failed, err, lease.Token, next.Token)
	}
}

// A node without its cluster is left for another host, also by connections that were made before.
func TestGaleraNodeWithoutCluster(t *testing.T) {
	serverprocess.Long(t, "starts three servers")
	t.Parallel()
	nodes := startGalera(t, 3)
	l := openAt(t, mysqltest.At(nodes[0].Addr()+","+nodes[1].Addr()), WithCommandTimeout(2*time.Second))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, pool(t, nodes[0].AdminURL()), "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
	eventually(t, "the node stays in the cluster", func() bool {
		var n int
		return numberOf(pool(t, nodes[0].URL()).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM holdfast_locks").Scan(&n)) == 1047
	})
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token {
		t.Error(r, err)
	}
	only, err := Open(t.Context(), nodes[0].URL(), WithCommandTimeout(time.Second))
	if err == nil {
		closeAtEnd(t, only)
	}
	if err == nil || driver.Lasting(err) || !strings.Contains(err.Error(), "without its cluster") {
		t.Errorf("a node without its cluster: %v", err)
	}
	run(t, pool(t, nodes[0].AdminURL()), "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")
}

// A Galera node that has lost its cluster refuses the commit and the rollback of a guarded transaction, and leaves it open. What comes
// next on the program's connections does not commit it.
func TestGaleraGuardOnANodeWithoutCluster(t *testing.T) {
	serverprocess.Long(t, "starts two servers")
	t.Parallel()
	nodes := startGalera(t, 2)
	l, db, admin := openAt(t, nodes[0].URL()), pool(t, nodes[0].URL()), pool(t, nodes[0].AdminURL())
	db.SetMaxOpenConns(1)
	run(t, db, "CREATE TABLE work (n bigint AUTO_INCREMENT PRIMARY KEY, token bigint) ENGINE=InnoDB")
	g, err := NewGuard(l, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	isolate := func(on string, code uint16) {
		run(t, admin, "SET GLOBAL wsrep_provider_options = 'gmcast.isolate="+on+"'")
		eventually(t, "the node does not notice", func() bool {
			var n int
			return numberOf(admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n)) == code
		})
	}
	err = g.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprint("INSERT INTO work (token) VALUES (", lease.Token, ")"))
		isolate("1", 1047)
		return err
	})
	if numberOf(err) != 1047 || errors.Is(err, ErrInDoubt) {
		t.Errorf("a guard on a node without its cluster: %v", err)
	}
	isolate("0", 0)
	eventually(t, "the program's connection is not usable again", func() bool {
		tx, err := db.BeginTx(t.Context(), nil)
		return err == nil && tx.Commit() == nil
	})
	var n int
	if err := admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v: what the guard has not let pass is committed", n, err)
	}
}
