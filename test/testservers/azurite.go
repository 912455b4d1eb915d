package testservers

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// The package-lock.json in a folder fixes the versions and the checksums of a package and of
// every package that it needs: of Azurite, Microsoft's emulator, and of axe-core.
//
//go:embed azurite/package.json azurite/package-lock.json axe/package.json axe/package-lock.json
var lockFiles embed.FS

// azuriteProgram is the path of Azurite in the folder of the packages.
const azuriteProgram = "azurite/dist/src/blob/main.js"

// EnvAzblobURL names the variable that makes the tests use a blob service that is running already.
const EnvAzblobURL = "HOLDFAST_TEST_AZBLOB_URL"

// AzuriteAdvice says what to do if Azurite cannot be fetched or started.
const AzuriteAdvice = "Azurite needs Node.js 18.17 or later on PATH; or set " + EnvAzblobURL + " to a service to test against"

var azurite = cached{"azurite-3.37.0", "75 MB, unpacked 365 MB, by npm", fetchAzurite}

// AzuriteIsCached reports whether Azurite has been fetched.
func AzuriteIsCached() bool { return azurite.isCached() }

// AzuriteModules returns the folder of Node.js packages that contains Azurite. It installs
// Azurite first if it is not in the cache.
func AzuriteModules(ctx context.Context) (string, error) {
	dir, err := azurite.ensure(ctx)
	if err != nil {
		return "", fmt.Errorf("no Azurite: %w; %s", err, AzuriteAdvice)
	}
	return filepath.Join(dir, "node_modules"), nil
}

// Azurite returns the path of the program for Node.js. It installs Azurite first if it is not
// in the cache.
func Azurite(ctx context.Context) (string, error) {
	modules, err := AzuriteModules(ctx)
	return filepath.Join(modules, filepath.FromSlash(azuriteProgram)), err
}

// fetchAzurite installs Azurite into a new folder, and checks that it runs on this machine.
func fetchAzurite(ctx context.Context, dir string) error {
	if err := installPackages(ctx, "azurite", dir); err != nil {
		return err
	}
	if err := run(ctx, "node", filepath.Join(dir, "node_modules", filepath.FromSlash(azuriteProgram)), "--version"); err != nil {
		return fmt.Errorf("the installed Azurite does not run on this machine: %w", err)
	}
	return nil
}

// installPackages has npm install the packages of a lock file into a new folder. npm runs no
// script of a package: none needs one.
func installPackages(ctx context.Context, lock, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := lockFiles.ReadFile(lock + "/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	dir, err := filepath.EvalSymlinks(dir) // npm 11 takes a folder behind a link for a package
	if err != nil {
		return err
	}
	return run(ctx, "npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
}
