package mysql

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Schema is the SQL that makes the table with its default name, for programs that may not create tables. It is the content of schema.sql.
//
//go:embed schema.sql
var Schema string

// tokenIndex is the index on which guards rely.
const tokenIndex = "token_name"

// prepare checks the server and the table, which it makes if there is none.
func (s *store) prepare(ctx context.Context) error {
	for range 3 {
		layout, err := s.layout(ctx)
		if err != nil {
			return err
		}
		if layout.exists() {
			if err := layout.refusal(); err != nil {
				return err
			}
			return s.identify(ctx)
		}
		made, err := do(ctx, s, func(ctx context.Context, c session) (string, error) {
			_, err := c.exec(ctx, strings.Replace(Schema, "IF NOT EXISTS "+DefaultTable, c.table, 1))
			return c.database + "." + c.name, err
		})
		switch {
		case hasCode(err, codeTableExists): // another program makes it, or this user may not see it
		case err != nil:
			return err
		default:
			s.config.logger.Info("holdfast: there was no table for locks, it was made", "backend", backend, "table", made)
		}
	}
	return driver.Denied(errors.New("the table exists, and the user has no right to it: GRANT SELECT, INSERT, UPDATE on it"))
}

// layout is what the server says of the table.
type layout struct {
	table        string // its name, for messages
	kind, engine string
	columns      []column
	unique       map[string]string // the columns of unique indexes, by name
}

type column struct {
	name, kind, extra string
	length            int64
	required          bool
}

func (l layout) exists() bool { return l.kind != "" }

func (s *store) layout(ctx context.Context) (layout, error) {
	return do(ctx, s, func(ctx context.Context, c session) (layout, error) {
		l := layout{table: c.database + "." + c.name, unique: map[string]string{}}
		of := " WHERE TABLE_SCHEMA = '" + c.database + "' AND TABLE_NAME = '" + c.name + "'"
		err := c.query(ctx, "SELECT TABLE_TYPE, COALESCE(ENGINE, '-') FROM information_schema.TABLES"+of, func() {}, &l.kind, &l.engine)
		var col column
		if err == nil {
			err = c.query(ctx, "SELECT COLUMN_NAME, DATA_TYPE, LOWER(EXTRA), COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), "+
				"IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND LENGTH(EXTRA) = 0 FROM information_schema.COLUMNS"+of,
				func() { l.columns = append(l.columns, col) }, &col.name, &col.kind, &col.extra, &col.length, &col.required)
		}
		var index, columns string
		if err == nil {
			err = c.query(ctx, "SELECT INDEX_NAME, COALESCE(GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX), '-') "+
				"FROM information_schema.STATISTICS"+of+" AND NON_UNIQUE = 0 AND SUB_PART IS NULL GROUP BY INDEX_NAME",
				func() { l.unique[index] = columns }, &index, &columns)
		}
		return l, err
	})
}

// neededColumn is a column that the table must have, with the kinds that it may have and how many bytes it must hold.
type neededColumn struct {
	name   string
	kinds  []string
	length int64
}

var needed = []neededColumn{
	{"name", []string{"varbinary"}, 150},
	{"token", []string{"bigint"}, 0},
	{"written", []string{"bigint"}, 0},
	{"value", []string{"mediumblob", "longblob"}, 0},
}

// refusal returns an error that says why a table is not one for locks, or nil.
func (l layout) refusal() error {
	problem := l.problem()
	if problem == "" {
		return nil
	}
	return driver.Damaged(fmt.Errorf("the table %s is not one for locks: %s; see schema.sql of the driver, or name another table in the "+
		"URL parameter %s", l.table, problem, paramTable))
}

func (l layout) problem() string {
	switch {
	case l.kind != "BASE TABLE":
		return "it is a view, or versioned, or the like"
	case l.engine != "InnoDB":
		return "its engine is " + driver.Quote(l.engine) + ", and only InnoDB compares and writes in one step and keeps it"
	}
	for _, n := range needed {
		at := slices.IndexFunc(l.columns, func(c column) bool { return strings.EqualFold(c.name, n.name) })
		switch {
		case at < 0:
			return "the column " + n.name + " is missing"
		case !slices.Contains(n.kinds, l.columns[at].kind) || l.columns[at].length < n.length:
			return "the column " + n.name + " has another type"
		case strings.Contains(l.columns[at].extra, " generated"):
			return "the column " + n.name + " is generated"
		}
	}
	for _, c := range l.columns {
		known := slices.ContainsFunc(needed, func(n neededColumn) bool { return strings.EqualFold(c.name, n.name) })
		if c.required && !known {
			return "it has the column " + driver.Quote(c.name) + ", which is NOT NULL and has no default"
		}
		if strings.Contains(c.extra, "auto_increment") { // the answer to an insert would have its value, and not the time
			return "it has the column " + driver.Quote(c.name) + ", which is AUTO_INCREMENT"
		}
	}
	switch {
	case l.unique["PRIMARY"] != "name":
		return "its primary key is not (name)"
	case l.unique[tokenIndex] != "token,name":
		return "it has no unique key " + tokenIndex + " (token, name)"
	}
	return ""
}
