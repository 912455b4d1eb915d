package testservers

import (
	"fmt"
	"os"
	"path/filepath"
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

// Mongod is that of [EnvMongod], else the version of [EnvVersion], else one on PATH, else the default version.
var Mongod = &Program{
	name: "mongod", system: func() string { return "" },
	advice: "set " + EnvMongod + " to a mongod of version 4.4 or later, or put one on PATH, or set " + EnvMongoURI +
		" to a replica set to test against",
	own: func() (string, error) { path, _, err := chooseMongod(); return path, err },
	cached: func() (cached, string) {
		_, v, _ := chooseMongod()
		return v.cached()
	},
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
	return onPath("mongod"), defaultVersion, nil
}
