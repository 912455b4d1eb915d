package oldlocks_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// envProgram has the server, the kind of lock, the table and the name of the lock of an old program that this test program is instead.
const envProgram = "HOLDFAST_TEST_OLD_PROGRAM"

func TestMain(m *testing.M) {
	if program := os.Getenv(envProgram); program != "" {
		if err := holdUntilKilled(strings.Split(program, " ")); err != nil {
			fmt.Println(err)
		}
		return
	}
	mysqltest.Main(m)
}

// holdUntilKilled takes a lock, says so, and waits.
func holdUntilKilled(program []string) error {
	db, err := sql.Open("mysql", dataSource(program[0]))
	if err != nil {
		return err
	}
	ctx := context.Background()
	got := false
	if kind := program[1]; kind == "shedlock" {
		got, err = shedLock{db: db, table: program[2], host: "killed", dbTime: true}.lock(ctx, program[3], killedFor)
	} else {
		err = db.QueryRowContext(ctx, "SELECT GET_LOCK('"+program[3]+"', 0)").Scan(&got)
	}
	if err != nil || !got {
		return fmt.Errorf("not granted: %w", err)
	}
	fmt.Println("held")
	select {}
}

// killedFor is the lockAtMostFor of a program that is killed.
const killedFor = 4 * time.Second

// killed starts a program that takes a lock, and kills it then. It returns when its request began.
func killed(t *testing.T, addr, kind, table, job string) (began time.Time) {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	program.Env = append(os.Environ(), envProgram+"="+strings.Join([]string{addr, kind, table, job}, " "))
	began = time.Now()
	_, out := serverprocess.Piped(t, program)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the program said %q, %v", line, err)
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait()
	return began
}

// dataSource is that of a server of package mysqltest.
func dataSource(addr string, params ...string) string {
	return mysqltest.AppUser + ":" + mysqltest.AppPassword + "@tcp(" + addr + ")/" + mysqltest.Database + "?" + strings.Join(params, "&")
}

// variable is a parameter that sets a variable of each session.
func variable(name, value string) string { return name + "=" + url.QueryEscape(value) }

func pool(t testing.TB, addr string, params ...string) *sql.DB {
	t.Helper()
	return poolOf(t, dataSource(addr, params...))
}

func poolOf(t testing.TB, source string) *sql.DB {
	t.Helper()
	config, err := gomysql.ParseDSN(source)
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &gomysql.NopLogger{}
	connector, err := gomysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// readme is the table as ShedLock's page has it. Many tables are older, and have other types.
const readme = "name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, " +
	"locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)"

// newTable makes a table that only the test uses.
func newTable(t testing.TB, db *sql.DB, columns string) (name string) {
	t.Helper()
	name = fmt.Sprintf("shed_%016x", rand.Uint64())
	run(t, db, "CREATE TABLE "+name+" ("+columns+")")
	return name
}

func newShedLock(t testing.TB, db *sql.DB, table string, skew time.Duration) *oldlocks.ShedLock {
	t.Helper()
	l, err := oldlocks.NewShedLock(db, oldlocks.Table{Name: table, Skew: skew, SessionsInUTC: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noSkew is for old programs that ask the server for the time.
const noSkew = time.Millisecond

func claim(name string, digit string) migrating.Claim {
	return migrating.Claim{Name: name, Owner: "me", Proof: strings.Repeat(digit, 32), TTL: time.Minute}
}

// shedLock is a program with ShedLock, by the statements of its class SqlStatementsSource, of MySqlServerTimeStatementsSource with
// usingDbTime, or of JooqStorageAccessor.
type shedLock struct {
	db          *sql.DB
	table, host string
	dbTime      bool
	jooq        bool
	ahead       time.Duration // of its own clock
}

func (s shedLock) now() string {
	switch {
	case s.jooq:
		return "CURRENT_TIMESTAMP(6)"
	case s.dbTime:
		return "UTC_TIMESTAMP(3)"
	}
	return s.stamp(0)
}

func (s shedLock) exec(ctx context.Context, statement string) (bool, error) {
	result, err := s.db.ExecContext(ctx, strings.NewReplacer("$table", s.table, "$host", "'"+s.host+"'", "$now", s.now()).Replace(statement))
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (s shedLock) stamp(later time.Duration) string {
	return time.Now().UTC().Add(s.ahead + later).Format("'2006-01-02 15:04:05.000000'")
}

func (s shedLock) until(atMost time.Duration) string {
	if s.dbTime || s.jooq {
		return fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d, %s)", atMost.Microseconds(), s.now())
	}
	return s.stamp(atMost)
}

// lock is StorageBasedLockProvider.lock.
func (s shedLock) lock(ctx context.Context, name string, atMost time.Duration) (bool, error) {
	ignore := ""
	if s.dbTime || s.jooq {
		ignore = "IGNORE "
	}
	inserted, err := s.exec(ctx, "INSERT "+ignore+"INTO $table(name, lock_until, locked_at, locked_by) VALUES('"+name+"', "+s.until(atMost)+
		", $now, $host)")
	if inserted {
		return true, nil
	}
	if answer := new(gomysql.MySQLError); err != nil && (!errors.As(err, &answer) || !slices.Contains([]uint16{1062, 1213}, answer.Number)) {
		return false, err
	}
	return s.exec(ctx, "UPDATE $table SET lock_until = "+s.until(atMost)+", locked_at = $now, locked_by = $host WHERE name = '"+name+
		"' AND lock_until <= $now")
}

func (s shedLock) extend(ctx context.Context, name string, atMost time.Duration) (bool, error) {
	return s.exec(ctx, "UPDATE $table SET lock_until = "+s.until(atMost)+" WHERE name = '"+name+
		"' AND locked_by = $host AND lock_until > $now")
}

// unlock is that of a program with usingDbTime.
func (s shedLock) unlock(ctx context.Context, name string, atLeast time.Duration) (bool, error) {
	end := fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d, locked_at)", atLeast.Microseconds())
	return s.exec(ctx, "UPDATE $table SET lock_until = IF ("+end+" > $now , "+end+", $now) WHERE name = '"+name+"' AND locked_by = $host")
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// span is when a holder could count on the lock, by the clock of this process.
type span struct {
	who         string
	from, until time.Time
}

// spans are those of programs that compete for one lock. The programs end when enough of each kind have held it.
type spans struct {
	mu     sync.Mutex
	all    []span
	counts map[string]int
	enough func()
}

// add notes a hold that began at from, and whose last request that gave it a lease began at asked.
func (s *spans) add(kind, who string, from, asked time.Time, ttl time.Duration) {
	until := time.Now()
	if end := asked.Add(ttl); end.Before(until) {
		until = end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.Before(until) {
		s.all = append(s.all, span{kind + " " + who, from, until})
		if s.counts[kind]++; min(s.counts["old"], s.counts["both"]) >= 8 {
			s.enough()
		}
	}
}

// check reports two that held the lock at the same time.
func (s *spans) check(t *testing.T) {
	t.Helper()
	slices.SortFunc(s.all, func(a, b span) int { return a.from.Compare(b.from) })
	for i, one := range s.all[min(1, len(s.all)):] {
		if before := s.all[i]; one.from.Before(before.until) {
			t.Errorf("%s from %v until %v, and %s from %v", before.who, before.from, before.until, one.who, one.from)
		}
	}
	if min(s.counts["old"], s.counts["both"]) < 8 {
		t.Errorf("holds: %v, want 8 of each kind", s.counts)
	}
	t.Logf("holds: %v", s.counts)
}
