package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// EnvMariaDBServer names the variable with the path of the mariadbd to start.
const EnvMariaDBServer = "HOLDFAST_TEST_MARIADB_SERVER"

// EnvMySQLURL names the variable that makes the tests use a MySQL or MariaDB that is running already. Its user may do everything.
const EnvMySQLURL = "HOLDFAST_TEST_MYSQL_URL"

var mariaDB = &Program{
	name: "MariaDB", own: named(EnvMariaDBServer), canFetch: canFetchMariaDB,
	advice: "set " + EnvMariaDBServer + " to a mariadbd of version 10.6 or later, or put one on PATH",
	cached: func() (cached, string) { // the content of Debian's packages: the server with its SQL files, Galera, and the libraries of both
		return cached{"mariadb-server", "9 MB, unpacked 60 MB, by apt-get", fetchMariaDB}, mariaDBServer
	},
	system: func() string { return onPath("mariadbd", "/usr/sbin/mariadbd") }, // not on the PATH of every user
}

const mariaDBServer = "usr/sbin/mariadbd"

// MariaDB is a server program with what it needs.
type MariaDB struct {
	Folder    string   // all files below are in it, if it was fetched
	Server    string   // mariadbd
	Share     string   // the folder with the SQL files that fill a new data folder
	Base      string   // --basedir
	Libraries []string // folders for LD_LIBRARY_PATH
	Galera    string   // the library of Galera, or ""
}

// MariaDBServer returns the server of [EnvMariaDBServer], else that of Debian's packages, which it fetches if it is not in the cache,
// without installing them. Where that is not possible, it is the one that the system provides.
func MariaDBServer(ctx context.Context) (MariaDB, error) {
	path, err := mariaDB.Path(ctx)
	if err != nil {
		return MariaDB{}, err
	}
	return mariaDBAt(mariaDB.folder(path), path)
}

// mariaDBAt finds what a server program needs beside it.
func mariaDBAt(folder, server string) (MariaDB, error) {
	m := MariaDB{Folder: folder, Server: server, Base: filepath.Dir(filepath.Dir(server))}
	for _, name := range []string{"mysql", "mariadb"} {
		if share := filepath.Join(m.Base, "share", name); exists(filepath.Join(share, systemTables)) {
			m.Share = share
		}
	}
	if m.Share == "" {
		return MariaDB{}, fmt.Errorf("%s has no %s beside it", server, systemTables)
	}
	if folder != "" {
		m.Libraries, _ = filepath.Glob(filepath.Join(folder, "usr/lib/*-linux-gnu"))
	}
	for _, path := range []string{"lib/galera/libgalera_smm.so", "lib64/galera-4/libgalera_smm.so"} {
		if path = filepath.Join(m.Base, path); exists(path) {
			m.Galera = path
		}
	}
	return m, nil
}

const systemTables = "mysql_system_tables.sql"

// canFetchMariaDB reports whether MariaDB can be fetched for this system: its libraries are those of the system.
func canFetchMariaDB() bool {
	return runtime.GOOS == "linux" && onPath("apt-get") != "" && onPath("apt-cache") != "" && onPath("dpkg") != ""
}

// aptDependency finds the libraries in the answer of apt-cache that few systems have already.
var aptDependency = regexp.MustCompile(`(?m)^ *Depends: (lib(?:aio|uring|numa|pcre2|fmt|snappy)[a-z0-9.+-]*)$`)

func fetchMariaDB(ctx context.Context, to string) error {
	tmp := filepath.Dir(to)
	err := downloadMariaDB(ctx, tmp)
	if err != nil && os.Geteuid() == 0 { // a new machine knows no packages yet
		if err = run(ctx, "apt-get", "update", "-qq"); err == nil {
			err = downloadMariaDB(ctx, tmp)
		}
	}
	if err != nil {
		return fmt.Errorf("%w (does it help to run apt-get update?)", err)
	}
	packages, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	fresh := filepath.Join(tmp, "fresh")
	for _, one := range packages {
		if err := run(ctx, "dpkg", "-x", one, fresh); err != nil {
			return err
		}
	}
	m, err := mariaDBAt(fresh, filepath.Join(fresh, mariaDBServer))
	if err != nil {
		return err
	}
	if err := run(ctx, "env", "LD_LIBRARY_PATH="+strings.Join(m.Libraries, ":"), m.Server, "--version"); err != nil {
		return fmt.Errorf("the fetched MariaDB does not run on this machine: %w", err)
	}
	return os.Rename(fresh, to)
}

// downloadMariaDB downloads packages into a folder.
func downloadMariaDB(ctx context.Context, dir string) error {
	const server = "mariadb-server-core"
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", server).Output()
	if err != nil {
		return fmt.Errorf("apt-cache depends %s: %w", server, err)
	}
	packages := []string{server, "galera-4"}
	for _, found := range aptDependency.FindAllStringSubmatch(string(out), -1) {
		packages = append(packages, found[1])
	}
	// apt-get downloads into its working directory.
	return run(ctx, "sh", append([]string{"-c", `cd "$0" && exec apt-get download -q "$@"`, dir}, packages...)...)
}
