package testservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// EnvChromium names the variable with the path of the browser to start.
const EnvChromium = "HOLDFAST_TEST_CHROMIUM"

var axe = cached{"axe-core-4.14.1", "600 kB, by npm", func(ctx context.Context, dir string) error {
	return installPackages(ctx, "axe", dir)
}}

// AxeIsCached reports whether axe-core has been fetched.
func AxeIsCached() bool { return axe.isCached() }

// Axe returns the path of the script of axe-core, which finds what makes a page hard to use for
// some people. It fetches the script first if it is not in the cache. Its licence is the MPL-2.0.
func Axe(ctx context.Context) (string, error) {
	dir, err := axe.ensure(ctx)
	if err != nil {
		return "", fmt.Errorf("no axe-core: %w; it needs Node.js 18.17 or later on PATH", err)
	}
	return filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"), nil
}

// Chromium returns the path of a browser that the DevTools protocol can drive.
func Chromium() (string, error) {
	if path := os.Getenv(EnvChromium); path != "" {
		return path, nil
	}
	if path := onPath("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"); path != "" {
		return path, nil
	}
	return "", errors.New("no Chromium on PATH: run \"go run ./tools/setup browser\" in the repository, or set " + EnvChromium)
}
