package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Every host of the URL is asked: one that does not answer, one of another cluster, and a second primary are found.
func TestCheckAsksEveryHost(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server, other := postgrestest.Start(t, postgrestest.Options{}), postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	sameDatabase(t, at, other)
	closeLocker(t, open(t, at))
	if _, there := examine(t, at)[subjectHosts]; there {
		t.Error("a single host is nothing to report")
	}
	twice := strings.Replace(at, server.Addr(), server.Addr()+","+strings.Replace(server.Addr(), "127.0.0.1", "localhost", 1), 1)
	wantFinding(t, examine(t, twice), subjectHosts, driver.LevelOK, "localhost") // one server with two names
	wantFinding(t, examine(t, both(t, at, other)), subjectHosts, driver.LevelWrong, "do not belong together")
	standby := server.Standby(t, true)
	all := both(t, at, standby)
	wantFinding(t, examine(t, all), subjectHosts, driver.LevelOK, standby.Addr()+" (a standby of the cluster")
	absent := strings.Replace(all, standby.Addr(), "127.0.0.1:1", 1)
	wantFinding(t, examine(t, absent), subjectHosts, driver.LevelDoubtful, "127.0.0.1:1 does not answer")
	standby.Promote(t)
	server.Set(t, "synchronous_standby_names", "") // the old primary works on by itself
	postgrestest.WaitFor(t, "the setting is in effect", func() bool {
		return scan[string](t, client(t, server.AdminURL("")), `SHOW synchronous_standby_names`) == ""
	})
	found := examine(t, all)
	wantFinding(t, found, subjectHosts, driver.LevelWrong, "several servers take writes")
	for _, part := range []string{server.Addr(), standby.Addr(), "timeline 1", "timeline 2"} {
		if !strings.Contains(found[subjectHosts].Detail, part) {
			t.Errorf("%q does not name %s", found[subjectHosts].Detail, part)
		}
	}
}

// Servers with sockets in one folder are several hosts, and TLS makes none of one.
func TestHostsOfAURL(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"postgres://u@/d?host=/tmp,/tmp&port=5432,5433":             "/tmp/.s.PGSQL.5432 /tmp/.s.PGSQL.5433",
		"postgres://u@/d?host=h1,h1,::1&port=1,2,1&sslmode=prefer":  "h1:1 h1:2 [::1]:1",
		"postgres://u@h1/d?sslmode=prefer&target_session_attrs=any": "h1:5432",
	} {
		dial, err := pgx.ParseConfig(at)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, h := range hostsOf(dial) {
			names = append(names, h.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}

// A subscription that writes into the table is found: where two servers replicate to each other, both grant.
func TestCheckFindsSubscriptions(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	from := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"wal_level": "logical"}})
	to := postgrestest.Start(t, postgrestest.Options{})
	at := from.Database(t)
	sameDatabase(t, at, to)
	there := to.At(t, at)
	closeLocker(t, open(t, at))
	closeLocker(t, open(t, there))
	run(t, client(t, asAdmin(at)), `CREATE PUBLICATION p FOR ALL TABLES`)
	source, err := pgconn.ParseConfig(asAdmin(at))
	if err != nil {
		t.Fatal(err)
	}
	run(t, client(t, asAdmin(there)), fmt.Sprintf(`CREATE SUBSCRIPTION "from_other" CONNECTION
		'host=%s port=%d dbname=%s user=%s password=%s' PUBLICATION p WITH (copy_data = false)`,
		source.Host, source.Port, source.Database, source.User, source.Password))
	defer postgrestest.SQL(t, asAdmin(there), `DROP SUBSCRIPTION "from_other"`)
	wantFinding(t, examine(t, there), subjectReplication, driver.LevelWrong, `the subscription "from_other" writes into`)
	if f, found := examine(t, at)[subjectReplication]; found {
		t.Errorf("the publisher: %+v", f)
	}
}
