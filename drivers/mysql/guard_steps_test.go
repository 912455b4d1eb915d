package mysql

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"testing"

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
