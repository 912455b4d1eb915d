package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// Like in the official image, arguments alone are passed to mongod, which listens on all
// addresses.
const mongoEntrypoint = `#!/bin/sh
if [ "${1#-}" != "$1" ] || [ $# = 0 ]; then set -- mongod "$@"; fi
if [ "$1" = mongod ]; then set -- "$@" --bind_ip_all; fi
exec "$@"
`

var mongoImage = image{
	name: "holdfast-local/mongo:6.0.5",
	fill: func(ctx context.Context, root *tree) error {
		if err := root.busybox(ctx); err != nil {
			return err
		}
		mongod, err := testservers.Mongod(ctx)
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

var azuriteImage = image{
	name: "holdfast-local/azurite:3.37.0",
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
