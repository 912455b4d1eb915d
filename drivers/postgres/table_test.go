package postgres

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write schema.sql")

// The file for programs that may not create tables has what the driver makes.
func TestSchemaFile(t *testing.T) {
	want := "-- The table of Holdfast's locks. Programs that may not create tables need SELECT, INSERT and UPDATE on it.\n" +
		createTable(DefaultTable) + ";\n"
	if *update {
		if err := os.WriteFile("schema.sql", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if Schema != want {
		t.Errorf("schema.sql differs from the table that the driver makes; run go test -run TestSchemaFile -update .\n%s", want)
	}
}
