package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// EnvMongod names the variable with the path of the mongod to start.
const EnvMongod = "HOLDFAST_TEST_MONGOD"

// EnvVersion names the variable that selects one of [Versions], which is fetched if it is not in
// the cache.
const EnvVersion = "HOLDFAST_TEST_MONGOD_VERSION"

// EnvMongoURI names the variable that makes the tests use a replica set that is running already.
const EnvMongoURI = "HOLDFAST_TEST_MONGODB_URI"

const mongodAdvice = "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " +
	EnvMongoURI + " to a replica set to test against"

// Mongod returns the path of a mongod: that of [EnvMongod], else the version of [EnvVersion], else
// one on PATH, else the default version. It fetches a version that is not in the cache.
func Mongod(ctx context.Context) (string, error) {
	path, v, err := chooseMongod()
	if path != "" || err != nil {
		return path, err
	}
	path, err = v.cached().ensure(ctx)
	if err != nil {
		return "", fmt.Errorf("no mongod: %w; %s", err, mongodAdvice)
	}
	return v.program(path), nil
}

// chooseMongod returns the path of a mongod that the user or the system provides, or else the
// version to take from the cache.
func chooseMongod() (path string, _ version, _ error) {
	if path := os.Getenv(EnvMongod); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", version{}, fmt.Errorf("%s: %w", EnvMongod, err)
		}
		path, err := filepath.Abs(path)
		return path, version{}, err
	}
	if name := os.Getenv(EnvVersion); name != "" {
		i := slices.IndexFunc(versions, func(v version) bool { return v.name == name })
		if i < 0 {
			return "", version{}, fmt.Errorf("%s is %.20q; the known versions are %s", EnvVersion, name, strings.Join(Versions(), ", "))
		}
		return "", versions[i], nil
	}
	if path, err := exec.LookPath("mongod"); err == nil {
		return path, version{}, nil
	}
	return "", defaultVersion, nil
}

// CanFetchMongod reports whether a mongod can be fetched for this system.
func CanFetchMongod() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// MongodIsInstalled reports whether the user or the system provides a mongod. If so, none is
// fetched.
func MongodIsInstalled() bool { path, _, err := chooseMongod(); return path != "" || err != nil }

// MongodIsCached reports whether the version that the tests use has been fetched.
func MongodIsCached() bool { _, v, err := chooseMongod(); return err == nil && v.cached().isCached() }
