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

// EnvMongod names the variable that tells which mongod to start.
const EnvMongod = "HOLDFAST_TEST_MONGOD"

// EnvVersion names the variable that asks for one of [Versions], which is fetched if it is
// not in the cache.
const EnvVersion = "HOLDFAST_TEST_MONGOD_VERSION"

// EnvMongoURI names the variable that points tests to a replica set that runs already.
const EnvMongoURI = "HOLDFAST_TEST_MONGODB_URI"

const mongodAdvice = "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " +
	EnvMongoURI + " to a replica set to test against"

// Mongod is the path of a mongod: what [EnvMongod] names, then the version that
// [EnvVersion] asks for, then PATH, then the cache, which it fills first if need be.
func Mongod(ctx context.Context) (string, error) {
	path, v, err := mongod()
	if path != "" || err != nil {
		return path, err
	}
	path, err = v.cache().fetched(ctx)
	if err != nil {
		return "", fmt.Errorf("no mongod: %w; %s", err, mongodAdvice)
	}
	return v.program(path), nil
}

// mongod is the path of a mongod that is there already, or else the version to fetch.
func mongod() (path string, _ version, _ error) {
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
			return "", version{}, fmt.Errorf("%s is %.20q; known are %s", EnvVersion, name, strings.Join(Versions(), ", "))
		}
		return "", versions[i], nil
	}
	if path, err := exec.LookPath("mongod"); err == nil {
		return path, version{}, nil
	}
	return "", usual, nil
}

// CanFetchMongod says whether a mongod can be fetched for this system.
func CanFetchMongod() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// MongodIsInstalled says whether a mongod is there that the system or the user brought: none
// is fetched then.
func MongodIsInstalled() bool { path, _, err := mongod(); return path != "" || err != nil }

// MongodIsCached says whether the mongod that is used has been fetched.
func MongodIsCached() bool { _, v, err := mongod(); return err == nil && v.cache().there() }
