package azuritetest

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/internal/toolcache"
)

// The version of Microsoft's emulator and the versions of all that it needs, with their
// checksums, are in node/package-lock.json.
//
//go:embed node/package.json node/package-lock.json
var lockFiles embed.FS

// program is Azurite's, as a path below the folder of the packages.
const program = "azurite/dist/src/blob/main.js"

const advice = "Azurite needs Node.js 18 or later with npm on PATH; or set " + EnvURL + " to a service to test against"

// Fetched is the Azurite of the cache.
var Fetched = toolcache.Tool{Name: "azurite-3.37.0", Size: "75 MB, unpacked 365 MB, by npm", Fetch: fetch}

// Modules is the folder of Node.js packages that has Azurite in it; it is
// installed there first if need be.
func Modules(ctx context.Context) (string, error) {
	dir, err := Fetched.Get(ctx)
	if err != nil {
		return "", fmt.Errorf("no Azurite: %w; %s", err, advice)
	}
	return filepath.Join(dir, "node_modules"), nil
}

// installed returns the path of Azurite's program; it is installed first if need be.
func installed(ctx context.Context) (string, error) {
	modules, err := Modules(ctx)
	return filepath.Join(modules, filepath.FromSlash(program)), err
}

// fetch has npm put the packages into a new folder, and tries whether Azurite runs here. No
// package's own script is run: Azurite needs none.
func fetch(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := lockFiles.ReadFile("node/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := toolcache.Run(ctx, "npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
		return err
	}
	if err := toolcache.Run(ctx, "node", filepath.Join(dir, "node_modules", filepath.FromSlash(program)), "--version"); err != nil {
		return fmt.Errorf("the installed Azurite does not run here: %w", err)
	}
	return nil
}
