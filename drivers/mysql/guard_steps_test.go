package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// Do takes the guard last, bounds how long its session may be idle before that, and ends the bound after the commit.
func TestGuardsSteps(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t, mysqltest.Options{Args: []string{"--log-output=TABLE", "--general-log=ON"}})
	l, db := openAt(t, s.URL()), pool(t, s.URL())
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(l, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DO 'the work'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := pool(t, s.AdminURL()).QueryContext(t.Context(), "SELECT argument FROM mysql.general_log WHERE command_type = 'Query' AND "+
		"thread_id = (SELECT MAX(thread_id) FROM mysql.general_log WHERE argument LIKE 'SAVEPOINT%') ORDER BY event_time")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	step := regexp.MustCompile("^(START|SAVEPOINT|DO|RELEASE|SET @holdfast_wait_timeout|SELECT 1|COMMIT|SET SESSION wait_timeout|ROLLBACK)")
	var steps []string
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step.FindString(statement))
	}
	want := []string{"START", "SAVEPOINT", "DO", "RELEASE", "SET @holdfast_wait_timeout", "SELECT 1", "COMMIT", "SET SESSION wait_timeout",
		"ROLLBACK"} // that of package database/sql
	if err := rows.Err(); err != nil || !slices.Equal(steps, want) {
		t.Errorf("the steps were %q, want %q, %v", steps, want, err)
	}
}

// endingConnector makes connections that end a context once the guard has read its row.
type endingConnector struct {
	sqldriver.Connector
	end func()
}

func (c endingConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return endingConn{conn.(clientConn), c.end}, nil
}

// clientConn is what package database/sql uses of the client library.
type clientConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
}

type endingConn struct {
	clientConn
	end func()
}

func (c endingConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	rows, err := c.clientConn.QueryContext(ctx, query, args)
	if err == nil && strings.HasPrefix(query, "SELECT 1 FROM") {
		rows = endingRows{rows, c.end}
	}
	return rows, err
}

type endingRows struct {
	sqldriver.Rows
	end func()
}

func (r endingRows) Close() error { defer r.end(); return r.Rows.Close() }

// The guard's error matches the end of its own hold, not of another, also where that comes right before the commit.
func TestGuardReportsWhichHoldEndedBetweenStatements(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	lease := g.acquire(t, "a")
	hosts, _, err := parse(mysqltest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	connector, err := gomysql.NewConnector(hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	db := sql.OpenDB(endingConnector{connector, func() { cancel(fmt.Errorf("the outer hold: %w", driver.ErrLost)) }})
	defer func() { _ = db.Close() }()
	if g.guard, err = NewGuard(g.l, db, nil); err != nil {
		t.Fatal(err)
	}
	err = g.guard.Do(ctx, guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
		return g.write(ctx, tx, lease, "a")
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "the outer hold") {
		t.Errorf("%v", err)
	}
	if got := g.notes(t); got != "" || ctx.Err() == nil {
		t.Errorf("the table has %q, %v", got, ctx.Err())
	}
}
