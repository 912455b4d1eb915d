package oldlocks_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// columnsOf are tables as they are found: of the page today, without parts of seconds, of another character set, and those of dates.
var columnsOf = map[string]string{
	"readme":  readme,
	"seconds": "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NULL, locked_at TIMESTAMP NULL, locked_by VARCHAR(255)",
	"latin1": "name VARCHAR(64) CHARACTER SET latin1 PRIMARY KEY, lock_until DATETIME(6), locked_at DATETIME(6), locked_by VARCHAR(255) " +
		"CHARACTER SET latin1",
	"dates": "name VARCHAR(64) PRIMARY KEY, lock_until DATETIME, locked_at DATETIME, locked_by VARCHAR(255)",
}

// unitOf is the smallest time that the columns have.
var unitOf = map[string]time.Duration{
	"readme": time.Millisecond, "seconds": time.Second, "latin1": time.Microsecond, "dates": time.Second,
}

// Programs with ShedLock and migrated ones exclude each other, whatever the types of the columns, the clock that ShedLock uses, and the
// rows that the client counts.
func TestShedLockAndMigratedProgramsExcludeEachOther(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	for what, columns := range columnsOf {
		for clock, found := range map[string]string{"usingDbTime": "true", "own": "false", "jooq": "false"} {
			t.Run(what+"/"+clock, func(t *testing.T) {
				t.Parallel()
				db := pool(t, addr, "clientFoundRows="+found)
				old := shedLock{db: pool(t, addr), table: newTable(t, db, columns), host: "host", dbTime: clock == "usingDbTime",
					jooq: clock == "jooq"}
				l := newShedLock(t, db, old.table, 0)
				if got, err := old.lock(t.Context(), "job", time.Hour); !got || err != nil {
					t.Fatal(got, err)
				}
				err := l.Acquire(t.Context(), claim("job", "a"))
				var held *driver.HeldError
				if !errors.As(err, &held) || held.Record.Owner != "host" || held.Record.Remaining < 50*time.Minute ||
					held.Record.Remaining > time.Hour+3*time.Second {
					t.Fatalf("beside the old program: %v", err)
				}
				if got, err := old.unlock(t.Context(), "job", 0); !got || err != nil {
					t.Fatal(got, err)
				}
				eventually(t, "the lock that was released is not granted", func() bool {
					return !errors.Is(l.Acquire(t.Context(), claim("job", "a")), driver.ErrHeld)
				})
				for range 2 { // and again: repeats, also within one second
					if err := l.Acquire(t.Context(), claim("job", "a")); err != nil {
						t.Fatal(err)
					}
					if err := l.Renew(t.Context(), claim("job", "a")); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := old.lock(t.Context(), "job", time.Hour); got || err != nil {
					t.Errorf("the old program got the lock beside the migrated one: %v", err)
				}
				if err := l.Acquire(t.Context(), claim("job", "b")); !errors.As(err, &held) || held.Record.Owner != "me" ||
					held.Record.RemainingKnown {
					t.Errorf("another claim: %v", err)
				}
				if err := l.Release(t.Context(), claim("job", "b")); err != nil {
					t.Error(err)
				}
				if got, err := old.lock(t.Context(), "job", time.Hour); got || err != nil {
					t.Errorf("after the release of another claim: %v, %v", got, err)
				}
				for range 2 {
					if err := l.Release(t.Context(), claim("job", "a")); err != nil {
						t.Error(err)
					}
				}
				if err := l.Renew(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrLost) {
					t.Errorf("a renewal after the release: %v", err)
				}
				if got, err := old.lock(t.Context(), "job", time.Hour); !got || err != nil {
					t.Errorf("the old program after the release: %v, %v", got, err)
				}
				// A row that the migrated program makes is like one of ShedLock's.
				if err := l.Acquire(t.Context(), claim("new", "a")); err != nil {
					t.Fatal(err)
				}
				if got, err := old.lock(t.Context(), "new", time.Hour); got || err != nil {
					t.Errorf("the old program, of a new row: %v, %v", got, err)
				}
			})
		}
	}
}

// A lease lasts for its TTL at least in every kind of column, and for ShedLock longer by the skew.
func TestLeaseLasts(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	for what, columns := range columnsOf {
		for _, ttl := range []time.Duration{time.Second, 1700 * time.Millisecond, time.Hour} {
			table := newTable(t, db, columns)
			l := newShedLock(t, db, table, 1500*time.Millisecond)
			c := claim("job", "a")
			c.TTL = ttl
			left := func(call error) (left time.Duration) {
				t.Helper()
				if call != nil {
					t.Fatal(call)
				}
				var micros int64
				if err := db.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) FROM "+table).
					Scan(&micros); err != nil {
					t.Fatal(err)
				}
				return time.Duration(micros) * time.Microsecond
			}
			for _, call := range []func() error{
				func() error { return l.Acquire(t.Context(), c) }, func() error { return l.Renew(t.Context(), c) },
				func() error { return l.Acquire(t.Context(), c) },
			} {
				run(t, db, "UPDATE "+table+" SET lock_until = TIMESTAMPADD(SECOND, -20, lock_until)") // as if time had passed
				began := time.Now()
				got := left(call())
				if least := ttl + 1500*time.Millisecond; got+time.Since(began) < least || got > least+2*unitOf[what] {
					t.Errorf("%s: %v: lock_until is in %v, want %v to %v more", what, ttl, got, least, 2*unitOf[what])
				}
			}
			// A repeated request extends the lease, and a renewal does so without a change, too.
			if got := left(l.Release(t.Context(), c)); got > -1500*time.Millisecond {
				t.Errorf("%s: %v: after the release lock_until is in %v", what, ttl, got)
			}
		}
	}
}

// Of several programs that make a row at the same time, one has the lock, and the others are refused.
func TestInsertsRace(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	l := newShedLock(t, db, newTable(t, db, readme), noSkew)
	for round := range 10 {
		var programs sync.WaitGroup
		var granted atomic.Int64
		for i := range 8 {
			programs.Go(func() {
				switch err := l.Acquire(t.Context(), claim(fmt.Sprint("job", round), fmt.Sprint(i))); {
				case err == nil:
					granted.Add(1)
				case !errors.Is(err, driver.ErrHeld):
					t.Error(err)
				}
			})
		}
		programs.Wait()
		if granted.Load() != 1 {
			t.Errorf("%d have the lock", granted.Load())
		}
	}
}

// The clock of a program with ShedLock may be wrong by the skew: such a program neither takes the lock too early, nor loses it.
func TestSkew(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	table := newTable(t, db, readme)
	const skew = 10 * time.Second
	l := newShedLock(t, db, table, skew)
	c := claim("job", "a")
	c.TTL = time.Second
	if err := l.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	fast := shedLock{db: db, table: table, host: "fast", ahead: skew}
	if got, err := fast.lock(t.Context(), "job", time.Hour); got || err != nil {
		t.Errorf("a program whose clock is fast: %v, %v", got, err)
	}
	// By the server's clock this lock is over when it is taken.
	slow := shedLock{db: db, table: table, host: "slow", ahead: -skew / 2}
	if got, err := slow.lock(t.Context(), "other", skew/2-time.Second); !got || err != nil {
		t.Fatal(got, err)
	}
	if err := l.Acquire(t.Context(), claim("other", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("the lock of a program whose clock is slow: %v", err)
	}
}

// The lock of a program that was killed is held until its time is over, and then granted.
func TestKilledProgramWithShedLock(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	table := newTable(t, db, readme)
	began := killed(t, addr, "shedlock", table, "job")
	l := newShedLock(t, db, table, noSkew)
	refused := 0
	eventually(t, "the lock is not granted", func() bool {
		err := l.Acquire(t.Context(), claim("job", "a"))
		if errors.Is(err, driver.ErrHeld) {
			refused++
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if took := time.Since(began); took < killedFor || refused == 0 {
		t.Errorf("granted %v after the program began, and it holds the lock for %v", took, killedFor)
	}
}

// A program with ShedLock whose time is over can extend while nobody else has taken the lock by its clock, and never afterwards. Its late
// release touches nobody's lock.
func TestLateRequestsOfShedLock(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	old := shedLock{db: db, table: newTable(t, db, readme), host: "host", dbTime: true}
	l := newShedLock(t, db, old.table, noSkew)
	must := func(what string, want, got bool, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
	}
	got, err := old.lock(t.Context(), "job", time.Second)
	must("lock", true, got, err)
	got, err = old.extend(t.Context(), "job", 2*time.Second)
	must("extend in time", true, got, err)
	if err := l.Acquire(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("after it was extended: %v", err)
	}
	eventually(t, "the lock is not granted", func() bool { return l.Acquire(t.Context(), claim("job", "a")) == nil })
	got, err = old.extend(t.Context(), "job", time.Hour)
	must("extend late", false, got, err)
	got, err = old.unlock(t.Context(), "job", 0)
	must("unlock late", false, got, err)
	got, err = old.lock(t.Context(), "job", time.Hour)
	must("lock", false, got, err)
	if err := l.Renew(t.Context(), claim("job", "a")); err != nil {
		t.Error(err)
	}
	// Some versions release by the name alone. Then the old program that is next has the lock, and the migrated holder has lost it.
	run(t, db, "UPDATE "+old.table+" SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'job'")
	got, err = old.lock(t.Context(), "job", time.Hour)
	must("lock", true, got, err)
	if err := l.Renew(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrLost) {
		t.Errorf("another holds the lock: %v", err)
	}
}

// A statement that waits on the server, and comes after a later one, shortens no lease. One that changes nothing has extended nothing.
func TestStatementsThatComeTooLate(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	table := newTable(t, db, instants)
	l := newShedLock(t, db, table, 0)
	c := claim("job", "a")
	c.TTL = 10 * time.Second
	if err := l.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context, migrating.Claim) error{"renew": l.Renew, "acquire": l.Acquire}
	run(t, db, "UPDATE "+table+" SET lock_until = '2100-01-02 03:04:05'")
	for what, call := range calls {
		if err := call(t.Context(), c); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var kept bool
		if err := db.QueryRowContext(t.Context(), "SELECT lock_until = '2100-01-02 03:04:05' FROM "+table).Scan(&kept); err != nil || !kept {
			t.Errorf("%s: the lease is shorter than before: %v", what, err)
		}
	}
	run(t, db, "UPDATE "+table+" SET lock_until = TIMESTAMPADD(SECOND, 5, UTC_TIMESTAMP())",
		"CREATE TRIGGER "+table+"_keeps BEFORE UPDATE ON "+table+" FOR EACH ROW SET NEW.lock_until = OLD.lock_until")
	for what, call := range calls {
		if err := call(t.Context(), c); err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: nothing was changed, and it returned %v", what, err)
		}
	}
}

// What a migrated program sends late touches nobody's lock. A lease that is over is renewed if nobody has had the lock since.
func TestLateRequestsOfMigratedPrograms(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	old := shedLock{db: db, table: newTable(t, db, readme), host: "host", dbTime: true}
	l := newShedLock(t, db, old.table, noSkew)
	c := claim("job", "a")
	c.TTL = 100 * time.Millisecond
	over := func() {
		t.Helper()
		eventually(t, "the lease does not end", func() (over bool) {
			err := db.QueryRowContext(t.Context(), "SELECT lock_until <= UTC_TIMESTAMP(3) FROM "+old.table+" WHERE name = 'job'").Scan(&over)
			return err == nil && over
		})
	}
	if err := l.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	over()
	if err := l.Renew(t.Context(), c); err != nil {
		t.Errorf("nobody else has had the lock: %v", err)
	}
	over()
	if got, err := old.lock(t.Context(), "job", time.Hour); !got || err != nil {
		t.Fatal(got, err)
	}
	if err := l.Renew(t.Context(), c); !errors.Is(err, driver.ErrLost) {
		t.Errorf("another holds the lock: %v", err)
	}
	if err := l.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
	if err := l.Acquire(t.Context(), c); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("the lock of another was released: %v", err)
	}
	if got, err := old.unlock(t.Context(), "job", 0); !got || err != nil {
		t.Fatal(got, err)
	}
	if err := l.Renew(t.Context(), c); !errors.Is(err, driver.ErrLost) {
		t.Errorf("another had the lock: %v", err)
	}
	run(t, db, "DELETE FROM "+old.table)
	if err := l.Renew(t.Context(), c); !errors.Is(err, driver.ErrLost) {
		t.Errorf("without a row: %v", err)
	}
}

// lockAtLeastFor of a program with ShedLock is respected.
func TestLockAtLeastFor(t *testing.T) {
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	old := shedLock{db: db, table: newTable(t, db, readme), host: "host", dbTime: true}
	l := newShedLock(t, db, old.table, noSkew)
	began := time.Now()
	if got, err := old.lock(t.Context(), "job", time.Hour); !got || err != nil {
		t.Fatal(got, err)
	}
	if got, err := old.unlock(t.Context(), "job", 2*time.Second); !got || err != nil {
		t.Fatal(got, err)
	}
	eventually(t, "the lock is not granted", func() bool { return l.Acquire(t.Context(), claim("job", "a")) == nil })
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("granted after %v", took)
	}
}

// Owners that a column cannot have are changed, and names that it cannot have are refused. Names that the table takes for one are one lock.
func TestOwnersAndNames(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	l := newShedLock(t, db, newTable(t, db, columnsOf["latin1"]), noSkew)
	c := claim("it's", "a")
	c.Owner = "é世" + strings.Repeat("x", 1000)
	if err := l.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var held *driver.HeldError
	if err := l.Acquire(t.Context(), claim("IT'S", "b")); !errors.As(err, &held) || !strings.HasPrefix(held.Record.Owner, "??xxx") ||
		strings.Contains(held.Record.Owner, c.Proof) {
		t.Errorf("the name in capitals: %v", err)
	}
	c.Owner = ""
	if err := errors.Join(l.Renew(t.Context(), c), l.Release(t.Context(), c)); err != nil {
		t.Error(err)
	}
	if err := l.Acquire(t.Context(), claim("it's", "b")); err != nil {
		t.Error(err)
	}
	if err := l.Acquire(t.Context(), claim("世", "a")); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a name of another character set: %v", err)
	}
	// A server that is not strict cuts a long name.
	lax := newShedLock(t, pool(t, addr, variable("sql_mode", "''")), newTable(t, db, readme), noSkew)
	for _, one := range []*oldlocks.ShedLock{l, lax} {
		if err := one.Acquire(t.Context(), claim(strings.Repeat("é", 65), "a")); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "must be at most 64 characters, as in the column name") {
			t.Errorf("a name with 65 characters: %v", err)
		}
		if err := one.Acquire(t.Context(), claim(strings.Repeat("é", 64), "a")); err != nil {
			t.Errorf("a name with 64 characters: %v", err)
		}
	}
}

// A session whose writes others would not see, or see at another time, is refused, and writes nothing.
func TestUnusableSessions(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	table := newTable(t, db, readme)
	open := pool(t, addr)
	open.SetMaxOpenConns(1)
	run(t, open, "START TRANSACTION")
	for want, bad := range map[string]*sql.DB{
		"autocommit is off":   pool(t, addr, variable("autocommit", "0")),
		"transaction was":     open,
		"time_zone is +05:00": pool(t, addr, variable("time_zone", "'+05:00'")),
	} {
		l := newShedLock(t, bad, table, 0)
		for what, err := range map[string]error{
			"acquire": l.Acquire(t.Context(), claim("job", "a")), "renew": l.Renew(t.Context(), claim("job", "a")),
			"release": l.Release(t.Context(), claim("job", "a")),
		} {
			if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", what, err, want)
			}
		}
	}
	good := newShedLock(t, db, table, 0)
	if err := good.Acquire(t.Context(), claim("job", "b")); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]*sql.DB{"autocommit": pool(t, addr, variable("autocommit", "0")), "open": open} {
		l := newShedLock(t, bad, table, 0)
		if err := l.Release(t.Context(), claim("job", "b")); err == nil {
			t.Errorf("%s: a release that nobody sees", what)
		}
	}
	if err := good.Renew(t.Context(), claim("job", "b")); err != nil {
		t.Error(err)
	}
}

// A replica, and an old primary, take no locks, also if the user may write there.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	admin := poolOf(t, mysqltest.AdminUser+":"+mysqltest.AdminPassword+"@tcp("+s.Addr()+")/"+mysqltest.Database)
	l := newShedLock(t, admin, newTable(t, admin, readme), 0)
	named, err := oldlocks.NewGetLock(admin)
	if err != nil {
		t.Fatal(err)
	}
	before := claim("before", "a")
	if err := named.Acquire(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	run(t, admin, "SET GLOBAL read_only = ON")
	if err := named.Renew(t.Context(), before); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal of GET_LOCK on a server that is read-only now: %v", err)
	}
	for what, err := range map[string]error{
		"acquire": l.Acquire(t.Context(), claim("job", "a")), "renew": l.Renew(t.Context(), claim("job", "a")),
		"GET_LOCK": named.Acquire(t.Context(), claim("job", "a")),
	} {
		if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, admin, "SET GLOBAL read_only = OFF")
	if err := l.Acquire(t.Context(), claim("job", "a")); err != nil {
		t.Error(err)
	}
}

// What cannot be judged is neither free nor replaced, and the error says why.
func TestStrangeRowsAndTables(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	table := newTable(t, db, columnsOf["seconds"])
	run(t, db, "INSERT INTO "+table+" VALUES ('never', NULL, NULL, 'host')",
		"INSERT INTO "+table+" VALUES ('zone', TIMESTAMPADD(HOUR, -1, UTC_TIMESTAMP()), TIMESTAMPADD(HOUR, 2, UTC_TIMESTAMP()), 'host')")
	dates := newTable(t, db, columnsOf["dates"])
	run(t, db, "INSERT INTO "+dates+" VALUES ('ever', '9999-12-31 23:59:59', UTC_TIMESTAMP(), 'ops')")
	if err := newShedLock(t, db, dates, 0).Acquire(t.Context(), claim("ever", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a lock until the year 9999: %v", err)
	}
	l := newShedLock(t, db, table, 0)
	for name, want := range map[string]string{"never": "no time in lock_until", "zone": "in the future: use usingDbTime"} {
		if err := l.Acquire(t.Context(), claim(name, "a")); err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := newTable(t, db, "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NULL")
	for _, missing := range []string{"missing", "missing.shedlock", other} {
		if err := newShedLock(t, db, missing, 0).Acquire(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	if err := newShedLock(t, db, mysqltest.Database+"."+table, 0).Acquire(t.Context(), claim("job", "a")); err != nil {
		t.Errorf("with its database: %v", err)
	}
}

func TestArgumentsOfShedLock(t *testing.T) {
	t.Parallel()
	db := poolOf(t, "u@tcp(127.0.0.1:1)/d")
	for _, bad := range []oldlocks.Table{{Name: "a.b.c"}, {Name: "a`b"}, {Name: " "}, {Skew: -1}, {Skew: 2 * time.Hour}} {
		if _, err := oldlocks.NewShedLock(db, bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := oldlocks.NewShedLock(nil, oldlocks.Table{}); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	l, err := oldlocks.NewShedLock(db, oldlocks.Table{})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Acquire(t.Context(), claim("job", "a"))
	if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "`shedlock`") {
		t.Errorf("no server: %v", err)
	}
}
