package mongotest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	fetchTimeout = 5 * time.Minute
	modulePath   = "github.com/holdfast-go/holdfast"
)

// EnvMongod names the variable that tells which mongod to start.
const EnvMongod = "HOLDFAST_TEST_MONGOD"

const advice = "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " +
	EnvURI + " to a replica set to test against"

// EnvVersion names the variable that asks for one of [Versions], which is fetched if it is
// not in the cache.
const EnvVersion = "HOLDFAST_TEST_MONGOD_VERSION"

// Binary is the path of a mongod: what [EnvMongod] names, then the version that
// [EnvVersion] asks for, then PATH, then the cache, which it fills first if need be.
func Binary(ctx context.Context) (string, error) { return binary(ctx) }

func binary(ctx context.Context) (string, error) {
	if path := os.Getenv(EnvMongod); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", EnvMongod, err)
		}
		return path, nil
	}
	wanted := usual
	if name := os.Getenv(EnvVersion); name != "" {
		i := slices.IndexFunc(versions, func(v version) bool { return v.name == name })
		if i < 0 {
			return "", fmt.Errorf("%s is %.20q; known are %s", EnvVersion, name, strings.Join(Versions(), ", "))
		}
		wanted = versions[i]
	} else if path, err := exec.LookPath("mongod"); err == nil {
		return path, nil
	}
	path, err := cached(ctx, wanted)
	if err != nil {
		return "", fmt.Errorf("no mongod: %w; %s", err, advice)
	}
	return path, nil
}

// cached returns the mongod of a version in the module's cache folder and fetches it
// first if need be. Test binaries of several packages come here at the same time, so
// a file lock lets one of them fetch, and a rename makes the result whole.
func cached(ctx context.Context, v version) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache")
	path := filepath.Join(dir, v.cached())
	if _, err := os.Stat(path); err == nil {
		return v.program(path), nil
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("it can be fetched for linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Unlock() }()
	if _, err := os.Stat(path); err == nil {
		return v.program(path), nil // another process was quicker
	}
	return v.program(path), v.fetch(ctx, dir, path)
}

// command runs a program and puts the end of what it wrote into its error.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, tail(out))
	}
	return nil
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
