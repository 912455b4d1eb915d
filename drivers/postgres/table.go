package postgres

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTable is the name of the table, unless [WithTable] or the URL parameter table sets another.
const DefaultTable = "holdfast_locks"

// Schema is the SQL that makes the table with its default name, for programs that may not create tables. It is the
// content of schema.sql.
//
//go:embed schema.sql
var Schema string

// columns finds name and type of each column in [Schema].
var columns = regexp.MustCompile(`(?m)^\t([a-z_]+) ([a-z ]+[a-z])`)

// createTable is the SQL that makes the table, and fails if there is one. table is a quoted name.
func createTable(table string) string {
	return strings.Replace(Schema, "IF NOT EXISTS "+DefaultTable, table, 1)
}

// found is what the server says about itself and the table.
type found struct {
	version    int
	encoding   string
	client     string   // client_encoding
	recovering bool     // it is a standby
	lag        *float64 // the age in seconds of what it has replayed
	sync       string   // synchronous_standby_names
	readOnly   string   // default_transaction_read_only
	fsync      string
	commit     string // synchronous_commit
	database   string
	current    string // the schema in which a table is made
	creates    *bool  // the user may make a table in the schema of the URL or in that; nil if there is no such schema
	oid        uint32 // of the table; 0 if there is none
	schema     string // of the table
	others     []other
}

// lookUp reads what the server says.
func lookUp(ctx context.Context, c *pgx.Conn, table tableName) (f found, err error) {
	if err := otherServer(c.PgConn().ParameterStatus); err != nil {
		return f, err
	}
	var others string
	err = c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
			current_setting('client_encoding'), pg_is_in_recovery(),
			extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8,
			current_setting('synchronous_standby_names'), current_setting('default_transaction_read_only'), current_setting('fsync'),
			current_setting('synchronous_commit'), current_database()::text, coalesce(current_schema()::text, ''),
			(SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = coalesce(nullif($3::text, ''), current_schema())),
			coalesce(c.oid, 0), coalesce(n.nspname::text, ''), `+othersSQL+`
		FROM (SELECT to_regclass($1::text) AS oid) AS t LEFT JOIN pg_class AS c ON c.oid = t.oid
		LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace`,
		table.quoted(), table.name, table.schema).Scan(&f.version, &f.encoding, &f.client, &f.recovering, &f.lag, &f.sync, &f.readOnly,
		&f.fsync, &f.commit, &f.database, &f.current, &f.creates, &f.oid, &f.schema, &others)
	if err == nil {
		f.others, err = decodeOthers(others)
	}
	return f, err
}

// otherServer refuses servers that are known not to keep locks by what they say about themselves when a connection is made. They lack
// what the driver's statements read, such as xmin, and their errors would say something else.
func otherServer(parameter func(name string) string) error {
	var name string
	switch {
	case parameter("crdb_version") != "":
		name = "CockroachDB"
	case strings.Contains(parameter("server_version"), "-YB-"):
		name = "YugabyteDB"
	default:
		return nil
	}
	return driver.Invalid("server", name, "PostgreSQL: this one lacks what the driver's statements read, such as the column xmin")
}

// minVersion is the oldest server: it has MATERIALIZED.
const minVersion = 120000

// refusal returns why the server cannot keep locks, or nil.
func (f found) refusal() error {
	switch {
	case f.version < minVersion:
		return driver.Invalid("server", fmt.Sprintf("of version %d", f.version/10000), "PostgreSQL 12 or newer")
	case f.encoding != "UTF8":
		return driver.Invalid("encoding of the database", driver.Quote(f.encoding), "UTF8, since names of locks are any UTF-8")
	case f.client != "UTF8": // the driver has asked for it
		return driver.Invalid("client_encoding", driver.Quote(f.client), "UTF8, which a pooler did not pass on: set it for the user")
	}
	return nil
}

// prepare checks the server and the table, which it makes if it may.
func (l *Locker) prepare(ctx context.Context, c *pgx.Conn) error {
	for range 3 {
		f, err := lookUp(ctx, c, l.config.table)
		if err == nil {
			err = cmp.Or(f.refusal(), f.hides(l.config.table))
		}
		if err != nil {
			return err
		}
		l.survives.Store(f.sync != "")
		switch {
		case f.oid != 0:
			if err := l.checkTable(ctx, c, f.oid); err != nil {
				return err
			}
			// Promise 1: whatever the search path of a connection is, this is the table.
			l.sql = statementsFor(tableName{f.schema, l.config.table.name}, l.config.history)
			l.warnOfOthers(f)
			return nil
		case l.config.onlyReads:
			return nil
		case f.recovering:
			return driver.Denied(errStandby)
		case f.schemaFor(l.config.table) == "":
			return driver.Denied(fmt.Errorf("no schema of the search path exists, so the table %s cannot be made; "+
				"name one in the URL parameter %s", l.config.table.name, paramSchema))
		}
		made := tableName{f.schemaFor(l.config.table), l.config.table.name} // behind a pooler the next statement can have another search path
		if _, err = c.Exec(ctx, createTable(made.quoted())); err == nil {
			l.reportMade(f, made)
		} else if !hasCode(err, codeUniqueViolation, codeDuplicateTable, codeDuplicateObject) { // another process makes it
			return err
		}
	}
	return fmt.Errorf("the table %s was made, and cannot be found", l.config.table.quoted())
}

// checkTable returns an error that names what is wrong with the table: it is of another program, or of an older version,
// or the user lacks a right.
func (l *Locker) checkTable(ctx context.Context, c *pgx.Conn, oid uint32) error {
	s, err := readTable(ctx, c, oid)
	switch {
	case err != nil:
		return err
	case s.problem != "":
		return driver.Damaged(fmt.Errorf("the table %s is not one for locks, or of another version (docs/upgrading.md): %s; see schema.sql "+
			"of the driver, or name another table in the URL parameter %s", l.config.table.quoted(), s.problem, paramTable))
	case s.missing != "" && !l.config.onlyReads:
		return driver.Denied(fmt.Errorf("the user lacks a right: GRANT %s ON %s", s.missing, l.config.table.quoted()))
	}
	if s.unlogged {
		l.survives.Store(false)
		if !l.config.onlyReads {
			l.config.logger.Warn("holdfast: the table of the locks is UNLOGGED: a crash of the server empties it, and a lock that is held "+
				"can be granted to another", "backend", backend, "table", l.config.table.quoted())
		}
	}
	return s.refusal(ctx, l, c)
}

// tableState describes a table.
type tableState struct {
	problem  string // how it differs from what the driver needs
	missing  string // rights that the user lacks
	unlogged bool
	meddlers
}

// unquoted is an SQL text without what quote_all_identifiers adds.
func unquoted(text string) string { return `replace(` + text + `, '"', '')` }

// hasKey is the SQL condition that a table has a unique index of these columns.
func hasKey(table, columns string) string {
	return `EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = ` + table + ` AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
		AND position(' USING btree (` + columns + `)' IN ` + unquoted(`pg_get_indexdef(i.indexrelid)`) + `) > 0)`
}

func readTable(ctx context.Context, c *pgx.Conn, oid uint32) (s tableState, err error) {
	var plain bool
	err = c.QueryRow(ctx, `SELECT relkind = 'r' AND NOT relispartition AND NOT relhassubclass,
			CASE WHEN NOT `+hasKey(`r.oid`, `name`)+` THEN 'it has no unique index on (name)'
			WHEN NOT `+hasKey(`r.oid`, `name, token`)+` THEN 'it has no unique index on (name, token)' ELSE '' END,
			relpersistence <> 'p', (SELECT coalesce(string_agg(p, ', '), '')
				FROM unnest('{SELECT,INSERT,UPDATE}'::text[]) AS p WHERE NOT has_table_privilege(r.oid, p))
		FROM pg_class AS r WHERE r.oid = $1::oid`, oid).Scan(&plain, &s.problem, &s.unlogged, &s.missing)
	if err == nil && !plain {
		s.problem = "it is a view, a partitioned table, or the like"
	}
	if err != nil || !plain {
		return s, err
	}
	var names, kinds []string
	for _, column := range columns.FindAllStringSubmatch(Schema, -1) {
		names, kinds = append(names, column[1]), append(kinds, column[2])
	}
	rows, _ := c.Query(ctx, `SELECT name, coalesce(w.kind, ''), coalesce(a.kind, ''), coalesce(a.collation, ''), coalesce(required, false)
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w(name, kind, n) FULL JOIN (
			SELECT attname::text AS name, `+unquoted(`format_type(atttypid, atttypmod)`)+` AS kind, collname AS collation,
				attnotnull AND NOT atthasdef AND attgenerated = '' AND attidentity = '' AS required
			FROM pg_attribute LEFT JOIN pg_collation AS k ON k.oid = attcollation
			WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped) AS a USING (name) ORDER BY w.n DESC NULLS FIRST`, oid, names, kinds)
	var name, want, kind, collation string
	var required bool
	// The problem that comes last remains: that of the first column that is needed.
	_, err = pgx.ForEachRow(rows, []any{&name, &want, &kind, &collation, &required}, func() error {
		switch {
		case want == "" && required:
			s.problem = fmt.Sprintf("it has the column %q, which is NOT NULL and has no default", name)
		case want != "" && kind == "":
			s.problem = "the column " + name + " is missing"
		case want != "" && want != kind:
			s.problem = fmt.Sprintf("the column %s has the type %s, and must have %s", name, kind, want)
		case name == "name" && collation != "C":
			s.problem = `the column name must have the collation "C"`
		}
		return nil
	})
	if err == nil {
		s.meddlers, err = readMeddlers(ctx, c, oid)
	}
	return s, err
}

// tableName is a table in a schema, or in the first schema of the search path that has it.
type tableName struct{ schema, name string }

func (t tableName) quoted() string {
	if t.schema == "" {
		return pgx.Identifier{t.name}.Sanitize()
	}
	return pgx.Identifier{t.schema, t.name}.Sanitize()
}
