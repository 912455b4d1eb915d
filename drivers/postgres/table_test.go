package postgres

import (
	"strings"
	"testing"

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
