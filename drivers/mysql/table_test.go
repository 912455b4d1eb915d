package mysql

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// A table that is not one for locks is refused by name, and nothing in it is changed.
func TestForeignTables(t *testing.T) {
	t.Parallel()
	const name, token, written, value = "name varbinary(255) NOT NULL", "token bigint unsigned NOT NULL", "written bigint NOT NULL",
		"value mediumblob NOT NULL"
	columns := strings.Join([]string{name, token, written, value}, ", ")
	const keys = ", PRIMARY KEY (name), UNIQUE KEY token_name (token, name)"
	for want, create := range map[string]string{
		"MyISAM":                  "TABLE % (" + columns + keys + ") ENGINE=MyISAM",
		"MEMORY":                  "TABLE % (" + strings.Replace(columns, "mediumblob", "varbinary(1000)", 1) + keys + ") ENGINE=MEMORY",
		"is a view":               "VIEW % AS SELECT 1 AS name",
		"versioned":               "TABLE % (" + columns + keys + ") ENGINE=InnoDB WITH SYSTEM VERSIONING",
		"column value is missing": "TABLE % (" + strings.Join([]string{name, token, written}, ", ") + keys + ") ENGINE=InnoDB",
		"column value has":        "TABLE % (" + strings.Replace(columns, "mediumblob", "blob", 1) + keys + ") ENGINE=InnoDB",
		"column name has":         "TABLE % (" + strings.Replace(columns, "varbinary(255)", "varchar(255)", 1) + keys + ") ENGINE=InnoDB",
		"column name has another": "TABLE % (" + strings.Replace(columns, "255", "100", 1) + keys + ") ENGINE=InnoDB",
		"column token has":        "TABLE % (" + strings.Replace(columns, "bigint unsigned", "int", 1) + keys + ") ENGINE=InnoDB",
		`column "more"`:           "TABLE % (" + columns + ", more int NOT NULL" + keys + ") ENGINE=InnoDB",
		"which is AUTO_INCREMENT": "TABLE % (id bigint AUTO_INCREMENT UNIQUE, " + columns + keys + ") ENGINE=InnoDB",
		"written is generated":    "TABLE % (" + strings.Replace(columns, written, "written bigint AS (token)", 1) + keys + ") ENGINE=InnoDB",
		"primary key is not":      "TABLE % (" + columns + ", PRIMARY KEY (name, token), UNIQUE KEY token_name (token, name)) ENGINE=InnoDB",
		"no unique key":           "TABLE % (" + columns + ", PRIMARY KEY (name), KEY token_name (token, name)) ENGINE=InnoDB",
	} {
		at := mysqltest.URL(t)
		_, table, _ := strings.Cut(at, "table=")
		run(t, pool(t, at), "CREATE "+strings.Replace(create, "%", table, 1))
		_, err := Open(t.Context(), at)
		if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), table) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for what, create := range map[string]string{
		"other columns": "TABLE % (id bigint UNIQUE, " + columns + ", note text, at timestamp NOT NULL DEFAULT now(), " +
			"size bigint AS (length(value))" + keys + ") ENGINE=InnoDB",
		"partitions": "TABLE % (" + columns + ", PRIMARY KEY (name), KEY (token)) ENGINE=InnoDB PARTITION BY KEY (name) PARTITIONS 4",
	} {
		at := mysqltest.URL(t)
		_, table, _ := strings.Cut(at, "table=")
		run(t, pool(t, at), "CREATE "+strings.Replace(create, "%", table, 1))
		if what == "partitions" { // a unique key of a partitioned table has the columns of the partitions
			run(t, pool(t, at), "ALTER TABLE "+table+" DROP KEY token, ADD UNIQUE KEY token_name (token, name)")
		}
		l := openAt(t, at)
		lease, err := l.TryAcquire(t.Context(), request("n", "a"))
		released(t, l, lease, err)
	}
}

// records counts the lines of a log.
type records struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	record.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	return nil
}

// Of several programs that begin together, one makes the table, and logs that by name. All use one set of locks.
func TestTableIsMadeOnce(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	log := &records{}
	var lockers [6]*Locker
	var opened sync.WaitGroup
	for i := range lockers {
		opened.Go(func() {
			var err error
			if lockers[i], err = Open(t.Context(), at, WithLogger(slog.New(log))); err != nil {
				t.Error(err)
			}
		})
	}
	opened.Wait()
	if t.Failed() {
		return
	}
	_, table, _ := strings.Cut(at, "table=")
	if len(log.lines) != 1 || !strings.Contains(log.lines[0], "table=app."+table) {
		t.Errorf("logged %q", log.lines)
	}
	for i, l := range lockers {
		_, err := l.TryAcquire(t.Context(), request("n", string(rune('a'+i))))
		if i > 0 && !errors.Is(err, driver.ErrHeld) || i == 0 && err != nil {
			t.Error(i, err)
		}
		closeAtEnd(t, l)
	}
}

// To read, no table is needed, none is made, and it is said to be missing.
func TestReadingWithoutTable(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	l, err := driver.OpenForReading(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Error(r, err)
	}
	for r, err := range l.Capabilities().Lister.List(t.Context(), "") {
		t.Error(r, err)
	}
	_, table, _ := strings.Cut(at, "table=")
	if missing, err := driver.MissingStore(t.Context(), l); err != nil || missing != "the table app."+table {
		t.Errorf("%q, %v", missing, err)
	}
	openAt(t, at)
	if missing, err := driver.MissingStore(t.Context(), l); err != nil || missing != "" {
		t.Errorf("%q, %v", missing, err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Error(r, err)
	}
}
