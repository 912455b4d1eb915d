package postgres

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// asAdmin is the URL for the superuser.
func asAdmin(at string) string {
	return strings.Replace(at, postgrestest.AppUser+":"+postgrestest.AppPassword, postgrestest.AdminUser+":"+postgrestest.AdminPassword, 1)
}

// tables are the tables of locks in the database.
func tables(t *testing.T, at string) string {
	t.Helper()
	return scan[string](t, client(t, at), `SELECT coalesce(string_agg(relnamespace::regnamespace || '.' || relname, ' ' ORDER BY 1), '')
		FROM pg_class WHERE lower(relname) = 'holdfast_locks'`)
}

// Promise 1: a program that does not see the table of the others makes no second one, in which it would hold the same locks at the
// same time.
func TestNoSecondTable(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	admin := client(t, server.AdminURL(""))
	run(t, admin, `CREATE ROLE other LOGIN PASSWORD 'postgrestest-other-password'`)
	asOther := func(at string) string {
		return strings.Replace(at, postgrestest.AppUser+":"+postgrestest.AppPassword, "other:postgrestest-other-password", 1)
	}
	const usage = "lacks USAGE"
	for name, c := range map[string]struct {
		prepare, params string
		as              func(string) string
		want            []string
		remedy          string // URL parameters with which it takes the locks of the others
		alone           string // and one of its own
	}{
		"search path of the role": {
			prepare: `CREATE SCHEMA app; ALTER ROLE app IN DATABASE %d SET search_path = app`,
			want:    []string{`"holdfast_locks"`, `"public"."holdfast_locks"`, "schema=public for that table", "schema=app for a new one"},
			remedy:  "schema=public", alone: "schema=app",
		},
		"search path that is absent": {
			params: "search_path=absent", want: []string{`"public"."holdfast_locks"`, "schema=public"}, remedy: "schema=public",
		},
		"upper case": {
			params: "table=Holdfast_Locks", remedy: "schema=public&table=holdfast_locks", alone: "schema=public",
			want: []string{`"Holdfast_Locks"`, `"public"."holdfast_locks"`, "schema=public, table=holdfast_locks", "schema=public for a new one"},
		},
		"rights": {
			prepare: `CREATE SCHEMA other AUTHORIZATION other; ALTER SCHEMA public OWNER TO admin; REVOKE USAGE ON SCHEMA public FROM PUBLIC;
				GRANT USAGE ON SCHEMA public TO app`,
			as: asOther, want: []string{`"public"."holdfast_locks"`, usage, "schema=other for a new one"}, alone: "schema=other",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := server.Database(t)
			closeLocker(t, open(t, at))
			if c.prepare != "" {
				database := at[strings.LastIndexByte(at, '/')+1 : strings.IndexByte(at, '?')]
				run(t, client(t, asAdmin(at)), strings.ReplaceAll(c.prepare, "%d", database))
				if c.as == nil {
					run(t, client(t, asAdmin(at)), `ALTER SCHEMA app OWNER TO app`)
				}
			}
			as := at
			if c.as != nil {
				as = c.as(at)
			}
			there := as
			if c.params != "" {
				there = with(as, c.params)
			}
			_, err := Open(bounded(t), there, WithLogger(discard))
			wantError(t, err, driver.ErrDenied, c.want...)
			_, err = driver.OpenForReading(bounded(t), there) // it would show that all locks are free
			wantError(t, err, driver.ErrDenied, c.want...)
			wantFinding(t, examine(t, there), subjectTable, driver.LevelWrong, c.want[len(c.want)-1])
			if all := tables(t, at); all != "public.holdfast_locks" {
				t.Errorf("there are %s", all)
			}
			if c.remedy != "" {
				closeLocker(t, open(t, with(strings.Replace(there, "table=", "application_name=", 1), c.remedy)))
				if all := tables(t, at); all != "public.holdfast_locks" {
					t.Errorf("there are %s", all)
				}
			}
			if c.alone != "" {
				logger, log := locktest.NewLog()
				closeLocker(t, open(t, with(there, c.alone), WithLogger(logger)))
				if text := log.Take(); !strings.Contains(text, "it was made") {
					t.Errorf("logged %q", text)
				}
			}
		})
	}
}

// The making of a table is logged once, with its name and its database.
func TestTableThatIsMadeIsLogged(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	logger, log := locktest.NewLog()
	closeLocker(t, open(t, at, WithLogger(logger)))
	text := log.Take()
	for _, part := range []string{"INFO", "it was made", `\"public\".\"holdfast_locks\"`, "database=test_"} {
		if !strings.Contains(text, part) {
			t.Errorf("logged %q, want %s", text, part)
		}
	}
	closeLocker(t, open(t, at, WithLogger(logger)))
	if text := log.Take(); text != "" {
		t.Errorf("then logged %q", text)
	}
}

// Where there are several tables already, a program and doctor say which it uses and that there are others.
func TestSeveralTables(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	closeLocker(t, open(t, at))
	run(t, client(t, at), `CREATE SCHEMA team`)
	named := with(at, "schema=team")
	closeLocker(t, open(t, named))
	logger, log := locktest.NewLog()
	closeLocker(t, open(t, at, WithLogger(logger)))
	if text := log.Take(); !strings.Contains(text, "WARN") || !strings.Contains(text, `others="\"team\".\"holdfast_locks\""`) {
		t.Errorf("logged %q", text)
	}
	closeLocker(t, open(t, named, WithLogger(logger)))
	if text := log.Take(); text != "" {
		t.Errorf("with a schema logged %q", text)
	}
	wantFinding(t, examine(t, at), subjectTable, driver.LevelDoubtful, `also has "team"."holdfast_locks"`)
	for subject, f := range examine(t, named) {
		if f.Level > driver.LevelUnchecked {
			t.Errorf("%s: %+v", subject, f)
		}
	}
}

// A table that the first program could not make is found wrong.
func TestCheckFindsThatNobodyCanMakeTheTable(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	wantFinding(t, examine(t, with(at, "schema=absent")), subjectTable, driver.LevelWrong, `"absent" does not exist`)
	wantFinding(t, examine(t, with(at, "search_path=absent")), subjectTable, driver.LevelWrong, "no schema of the search path")
	run(t, client(t, asAdmin(at)), `CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO app`)
	wantFinding(t, examine(t, with(at, "schema=theirs")), subjectTable, driver.LevelWrong, `GRANT CREATE ON SCHEMA "theirs" TO`)
}
