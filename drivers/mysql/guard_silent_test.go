package mysql

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// A connection that breaks after the function has returned ends the transaction, and not the program.
func TestGuardsConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{})
	l, db, admin := openAt(t, s.URL()), pool(t, s.URL()), pool(t, s.AdminURL())
	run(t, db, "CREATE TABLE work (token bigint) ENGINE=InnoDB")
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(l, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	var id int64
	var kill sync.WaitGroup
	defer kill.Wait()
	err = locktest.Within(t, 20*time.Second, "Do on a connection that is killed", func() error {
		return g.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO work VALUES (1)"); err != nil {
				return err
			}
			if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				return err
			}
			// So the guard's own statement waits, and is killed there.
			if _, err := locks.ExecContext(ctx, "LOCK TABLES "+tableOf(l)+" WRITE"); err != nil {
				return err
			}
			kill.Go(func() {
				waits := 0
				for end := time.Now().Add(10 * time.Second); waits == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					_ = admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting%' "+
						"AND id = ?", id).Scan(&waits)
				}
				if waits == 0 {
					t.Error("the guard's statement does not wait")
				}
				_, _ = admin.ExecContext(t.Context(), fmt.Sprint("KILL ", id))
			})
			return nil
		})
	})
	if err == nil || errors.Is(err, ErrInDoubt) {
		t.Errorf("%v", err)
	}
	if _, err := locks.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
	if in := db.Stats().InUse; in != 0 {
		t.Errorf("%d connections have not come back", in)
	}
}

// spy is a connection that tells of each statement before it is sent.
type spy struct {
	net.Conn
	sends func(statement string)
}

func (s spy) Write(data []byte) (int, error) {
	if len(data) > 5 && data[4] == 3 { // COM_QUERY
		s.sends(string(bytes.Clone(data[5:])))
	}
	return s.Conn.Write(data)
}

// A network that falls silent at any step does not keep Do for longer than its limits, and the outcome is known unless that is the commit.
func TestGuardOnASilentNetwork(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	mine := errors.New("mine")
	for i, c := range []struct {
		at      string // the beginning of the statement at which the network falls silent
		nth     int
		fn, end error
		inDoubt bool
		written bool
	}{
		{at: "START TRANSACTION", end: context.DeadlineExceeded},
		{at: "SAVEPOINT", end: context.DeadlineExceeded},
		{at: "ROLLBACK", fn: mine, end: mine},
		{at: "ROLLBACK", nth: 1, fn: mine, end: mine}, // that of package database/sql
		{at: "RELEASE", end: context.DeadlineExceeded},
		{at: "SET @holdfast_wait_timeout", end: context.DeadlineExceeded},
		{at: "SELECT 1 FROM", end: context.DeadlineExceeded},
		{at: "COMMIT", end: context.DeadlineExceeded, inDoubt: true},
		{at: "SET SESSION wait_timeout", written: true},
		{at: "ROLLBACK", written: true}, // that of package database/sql
	} {
		what := fmt.Sprint(c.at, " ", c.nth, " ", c.fn)
		plain := newGuarded(t, nil)
		lease := plain.acquire(t, "a")
		proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
		armed, seen := false, 0
		network := fmt.Sprint("silent", i)
		gomysql.RegisterDialContext(network, func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Addr())
			return spy{conn, func(statement string) {
				if armed && strings.HasPrefix(statement, c.at) {
					if seen++; seen > c.nth {
						proxy.Set(castest.Stall)
					}
				}
			}}, err
		})
		db := pool(t, mysqltest.URL(t), func(cfg *gomysql.Config) { cfg.Net = network })
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		g, err := NewGuard(plain.l, db, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.stepLimit, g.commitLimit = limit, limit
		armed = true
		began := time.Now()
		err = locktest.Within(t, 20*limit, what, func() error {
			return g.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(plain.write(ctx, tx, lease, "work"), c.fn)
			})
		})
		if !errors.Is(err, c.end) || errors.Is(err, ErrInDoubt) != c.inDoubt {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took < limit || seen <= c.nth {
			t.Errorf("%s: the network has not been silent: %v, %d", what, took, seen)
		}
		if in := db.Stats().OpenConnections; in != 0 {
			t.Errorf("%s: %d connections are in the pool", what, in)
		}
		proxy.Set(castest.Refuse)
		if got := plain.notes(t); (got == "work") != c.written {
			t.Errorf("%s: the table has %q", what, got)
		}
	}
}

// When the hold is lost together with the network, Do returns with that within its limits, and nothing was written.
func TestGuardsHoldIsLostOnASilentNetwork(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	l := openAt(t, at)
	proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
	through := pool(t, strings.Replace(at, mysqltest.Shared(t).Addr(), proxy.Addr(), 1))
	g, err := NewGuard(l, through, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.stepLimit = 500 * time.Millisecond
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, notices := range []bool{true, false} {
		proxy.Set(castest.Pass)
		held, lose := context.WithCancelCause(t.Context())
		err = locktest.Within(t, 10*time.Second, "Do of a hold that is lost", func() error {
			return g.Do(t.Context(), guard.Unnoticed(held, lease), func(ctx context.Context, tx *sql.Tx) error {
				proxy.Set(castest.Stall)
				time.AfterFunc(100*time.Millisecond, func() { lose(driver.ErrLost) })
				if notices {
					_, err := tx.ExecContext(ctx, "DO 1")
					return err
				}
				<-ctx.Done()
				return nil
			})
		})
		if !errors.Is(err, driver.ErrLost) || errors.Is(err, ErrInDoubt) {
			t.Errorf("it notices: %v: %v", notices, err)
		}
	}
	proxy.Set(castest.Refuse)
}

// Only a commit that may have reached the server is in doubt.
func TestGuardsOutcome(t *testing.T) {
	t.Parallel()
	for err, doubtful := range map[error]bool{
		&gomysql.MySQLError{Number: codeDeadlock}: false,
		&gomysql.MySQLError{Number: 1047}:         false,
		&gomysql.MySQLError{Number: 1317}:         true,
		&gomysql.MySQLError{Number: 1021}:         true,
		gomysql.ErrInvalidConn:                    true,
		context.DeadlineExceeded:                  true,
		sqldriver.ErrBadConn:                      false, // the client library promises that nothing was sent
	} {
		if got := outcome(err); got == nil || errors.Is(got, ErrInDoubt) != doubtful {
			t.Errorf("%v: %v", err, got)
		}
		if got := outcome(err); errors.Is(got, ErrInDoubt) && driver.OutcomeKnown(got) {
			t.Errorf("%v: in doubt and known: %v", err, got)
		}
	}
}
