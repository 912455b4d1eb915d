package postgres

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A table is one set of locks. Holders in two tables do not exclude each other, so a program that makes a second one, because
// its search path, its rights or an upper-case letter hide the first, must not do so without a word.

// other is a table of the database whose name differs from that of the locks at most in upper and lower case.
type other struct {
	Schema, Name string
	Hidden       bool // the user lacks USAGE on its schema
}

func (o other) String() string {
	text := tableName{o.Schema, o.Name}.quoted()
	if o.Hidden {
		text += " (the user lacks USAGE on that schema)"
	}
	return text
}

// othersSQL is the SQL for all such tables as a JSON array. pg_class shows them without rights. $2 is the name; t.oid is the table
// that was found.
const othersSQL = `(SELECT coalesce(json_agg(json_build_object('Schema', s.nspname, 'Name', o.relname,
		'Hidden', NOT has_schema_privilege(s.oid, 'USAGE')) ORDER BY s.nspname, o.relname), '[]')::text
	FROM pg_class AS o JOIN pg_namespace AS s ON s.oid = o.relnamespace
	WHERE lower(o.relname::text) = lower($2::text) AND o.relkind IN ('r', 'p', 'f') AND s.nspname !~ '^pg_' AND o.oid <> coalesce(t.oid, 0))`

func decodeOthers(text string) (all []other, err error) {
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("tables of the same name: %w", err)
	}
	return all, nil
}

func listOthers(all []other) string {
	texts := make([]string, len(all))
	for i, o := range all {
		texts[i] = o.String()
	}
	return strings.Join(texts, ", ")
}

// parameters are the URL parameters that name a table.
func (o other) parameters(table tableName) string {
	text := paramSchema + "=" + o.Schema
	if o.Name != table.name {
		text += ", " + paramTable + "=" + o.Name
	}
	return text
}

// hides returns an error if the table of a URL without a schema was not found, and others have its name: programs may hold locks
// there.
//
// Promise 1: they and this program would not exclude each other.
func (f found) hides(table tableName) error {
	if f.oid != 0 || table.schema != "" || len(f.others) == 0 {
		return nil
	}
	text := fmt.Sprintf("no schema of the search path has the table %s, and the database has %s, whose locks are others: "+
		"name the schema in the URL: %s", table.quoted(), listOthers(f.others), f.others[0].parameters(table))
	if f.current != "" {
		text += fmt.Sprintf(" for that table, or %s=%s for a new one", paramSchema, f.current)
	}
	return driver.Denied(fmt.Errorf("%s (nothing was made)", text))
}

// schemaFor is the schema in which the table is made; empty if there is none.
func (f found) schemaFor(table tableName) string {
	if table.schema != "" {
		return table.schema
	}
	return f.current
}

// reportMade logs that this Locker has made the table.
func (l *Locker) reportMade(f found, made tableName) {
	l.config.logger.Info("holdfast: there was no table for locks, it was made", "backend", backend, "database", f.database,
		"table", made.quoted())
}

// warnOfOthers logs that the search path chooses between several tables.
func (l *Locker) warnOfOthers(f found) {
	if l.config.table.schema != "" || len(f.others) == 0 || l.config.onlyReads {
		return
	}
	l.config.logger.Warn("holdfast: the database has several tables of this name, and the search path chooses one: "+
		"name the schema in the URL parameter "+paramSchema, "backend", backend, "database", f.database,
		"table", tableName{f.schema, l.config.table.name}.quoted(), "others", listOthers(f.others))
}

// absentTable examines where the table will be made, and whether the user may.
func (c *checkup) absentTable() {
	table := c.l.config.table
	where := c.found.schemaFor(table)
	switch hidden := c.found.hides(table); {
	case hidden != nil:
		c.Wrong(subjectTable, "Name the schema in the URL parameter "+paramSchema+" of all programs.", "", "%s", driver.ErrorText(hidden))
	case where == "":
		c.Wrong(subjectTable, "Name one in the URL parameter "+paramSchema+".", "", "there is none, and no schema of the search path exists")
	case c.found.creates == nil:
		c.Wrong(subjectTable, "Create it, or correct the URL parameter "+paramSchema+".", "", "the schema %s does not exist", driver.Quote(where))
	case !*c.found.creates:
		c.Wrong(subjectTable, "Make the table as the owner of the schema by the driver's schema.sql, or run this, with the user of the locks:",
			"GRANT CREATE ON SCHEMA "+tableName{"", where}.quoted()+" TO USER",
			"there is none, and the user may not make it in the schema %s", driver.Quote(where))
	default:
		c.OK(subjectTable, "there is none yet; the first program makes it in the schema %s", driver.Quote(where))
		c.otherTables()
	}
}

// otherTables reports tables of the same name: those of other programs, or of the same programs with another search path.
func (c *checkup) otherTables() {
	switch table := c.l.config.table; {
	case len(c.found.others) == 0:
	case table.schema == "":
		c.Doubtful(subjectTable, "Name the schema in the URL parameter "+paramSchema+" of all programs.",
			"the search path chooses this table, and the database also has %s: with another search path or other rights a program takes "+
				"its locks there, beside the holders here", listOthers(c.found.others))
	default:
		c.OK(subjectTable, "the database also has %s, whose locks are others", listOthers(c.found.others))
	}
}
