package testservers

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// The version of Microsoft's emulator and the versions of all that it needs, with their
// checksums, are in azurite/package-lock.json.
//
//go:embed azurite/package.json azurite/package-lock.json
var lockFiles embed.FS

// azuriteProgram is a path below the folder of the packages.
const azuriteProgram = "azurite/dist/src/blob/main.js"

// EnvAzblobURL names the variable that points tests to a blob service that runs already.
const EnvAzblobURL = "HOLDFAST_TEST_AZBLOB_URL"

// AzuriteAdvice says what to do where Azurite cannot be had.
const AzuriteAdvice = "Azurite needs Node.js 18 or later with npm on PATH; or set " + EnvAzblobURL + " to a service to test against"

var azurite = cached{"azurite-3.37.0", "75 MB, unpacked 365 MB, by npm", fetchAzurite}

// AzuriteIsCached says whether Azurite has been fetched.
func AzuriteIsCached() bool { return azurite.there() }

// AzuriteModules is the folder of Node.js packages that has Azurite in it; it is
// installed there first if need be.
func AzuriteModules(ctx context.Context) (string, error) {
	dir, err := azurite.fetched(ctx)
	if err != nil {
		return "", fmt.Errorf("no Azurite: %w; %s", err, AzuriteAdvice)
	}
	return filepath.Join(dir, "node_modules"), nil
}

// Azurite is the path of the program that Node.js runs; it is installed first if need be.
func Azurite(ctx context.Context) (string, error) {
	modules, err := AzuriteModules(ctx)
	return filepath.Join(modules, filepath.FromSlash(azuriteProgram)), err
}

// fetchAzurite has npm put the packages into a new folder, and tries whether Azurite runs here. No
// package's own script is run: Azurite needs none.
func fetchAzurite(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := lockFiles.ReadFile("azurite/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := run(ctx, "npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
		return err
	}
	if err := run(ctx, "node", filepath.Join(dir, "node_modules", filepath.FromSlash(azuriteProgram)), "--version"); err != nil {
		return fmt.Errorf("the installed Azurite does not run here: %w", err)
	}
	return nil
}
