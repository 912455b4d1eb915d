package azuritetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// The package that is Microsoft's emulator, and the program in it.
const (
	azurite        = "azurite@3.37.0"
	cachedName     = "azurite-3.37.0"
	program        = "node_modules/azurite/dist/src/blob/main.js"
	installTimeout = 5 * time.Minute
	modulePath     = "github.com/holdfast-go/holdfast"
)

const advice = "Azurite needs Node.js 20 or later with npm on PATH; or set " + EnvURL + " to a service to test against"

// Modules is the folder of Node.js packages that has Azurite in it; it is
// installed there first if need be.
func Modules(ctx context.Context) (string, error) {
	path, err := installed(ctx)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(path, filepath.FromSlash(strings.TrimPrefix(program, "node_modules"))), nil
}

// installed returns the path of Azurite in the module's cache folder, and
// installs it there first if need be. Test binaries of several packages come
// here at the same time, so a file lock lets one of them install, and a rename
// makes the result whole.
func installed(ctx context.Context) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache")
	final := filepath.Join(dir, cachedName)
	path := filepath.Join(final, filepath.FromSlash(program))
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	lock := flock.New(final + ".lock")
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Unlock() }()
	if exists(path) {
		return path, nil // another process was quicker
	}
	if err := install(ctx, dir, final); err != nil {
		return "", fmt.Errorf("%w; %s", err, advice)
	}
	return path, nil
}

// install has npm put the package into a new folder, tries whether it runs
// here, and only then gives the folder its name.
func install(ctx context.Context, dir, final string) error {
	tmp, err := os.MkdirTemp(dir, "install-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := run(ctx, "npm", "install", "--prefix", tmp, "--no-save", "--no-audit", "--no-fund", "--loglevel=error", azurite); err != nil {
		return err
	}
	if err := run(ctx, "node", filepath.Join(tmp, filepath.FromSlash(program)), "--version"); err != nil {
		return fmt.Errorf("the installed Azurite does not run here: %w", err)
	}
	return os.Rename(tmp, final)
}

// run runs a program and puts the end of what it wrote into its error.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, tail(out))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// moduleRoot is the nearest folder upward whose go.mod is this module's.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s above %s", modulePath, start)
		}
	}
}

// tail is the last part of a program's output.
func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = append([]byte("… "), out[len(out)-most:]...)
	}
	return strings.TrimSpace(string(out))
}
