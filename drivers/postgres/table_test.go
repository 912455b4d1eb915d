package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// The columns that a table must have are those of schema.sql, with their types.
func TestColumnsOfTheSchema(t *testing.T) {
	t.Parallel()
	c := client(t, postgrestest.URL(t))
	run(t, c, Schema)
	var found []string
	for _, column := range columns.FindAllStringSubmatch(Schema, -1) {
		found = append(found, column[1]+" "+column[2])
	}
	want := scan[string](t, c, `SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'holdfast_locks'::regclass AND attnum > 0`)
	if got := strings.Join(found, ", "); got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// Other servers that speak PostgreSQL's protocol are refused by name, before they are asked anything.
func TestOtherServersAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ parameter, value, want string }{
		{"crdb_version", "CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)", "CockroachDB"},
		{"server_version", "11.2-YB-2.20.1.0-b0", "YugabyteDB"},
		{"server_version", "15.12-YB-2025.1.0.0-b0", "YugabyteDB"},
		{"server_version", "15.6 (Debian 15.6-1.pgdg120+2)", ""},
		{"server_version", "18beta1", ""},
	} {
		err := otherServer(func(name string) string {
			if name == c.parameter {
				return c.value
			}
			return ""
		})
		if refused := errors.Is(err, driver.ErrInvalid) && strings.Contains(err.Error(), c.want); refused != (c.want != "") {
			t.Errorf("%s: %v, want %q", c.value, err, c.want)
		}
	}
}
