package main

import (
	"os"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// need is something that the tests cannot do without.
type need struct {
	what, why string
	packages  map[string]string // by package manager; what it lacks, it does not have
	instead   string            // what else helps
	there     func(system) bool
}

// needs are in the order in which they are listed.
func needs() []need {
	compilerInstead := ""
	if runtime.GOOS == "darwin" {
		compilerInstead = "it comes with xcode-select --install"
	}
	all := []need{{
		what: "make", why: "it runs the tests",
		packages: map[string]string{"apt-get": "make", "dnf": "make", "apk": "make", "brew": "make"},
		there:    func(s system) bool { return s.has("make") },
	}, {
		what: "a C compiler", why: "the race detector needs one",
		packages: map[string]string{"apt-get": "gcc libc6-dev", "dnf": "gcc glibc-devel", "apk": "gcc musl-dev"},
		instead:  compilerInstead,
		there: func(s system) bool {
			return s.works("#include <stdlib.h>\nint main(void) { return 0; }\n", compiler(), "-x", "c", "-fsyntax-only", "-")
		},
	}, {
		what: "Node.js with npm", why: "npm fetches Azurite, Node.js runs it",
		packages: map[string]string{"apt-get": "nodejs npm", "dnf": "nodejs npm", "apk": "nodejs npm", "brew": "node"},
		there: func(s system) bool {
			return s.works("", "node", "--version") && (testservers.AzuriteIsCached() || s.works("", "npm", "--version"))
		},
	}}
	switch {
	case testservers.MongodIsInstalled():
	case !testservers.CanFetchMongod():
		all = append(all, need{
			what: "mongod", why: "the MongoDB driver is tested on it",
			packages: map[string]string{"brew": "mongodb/brew/mongodb-community"},
			instead:  "install MongoDB 4.4 or later so that mongod is on PATH, or set " + testservers.EnvMongod + " to its path",
			there:    func(system) bool { return false },
		})
	default:
		all = append(all, need{
			what: "libcurl 4", why: "mongod is linked with it",
			packages: map[string]string{"apt-get": "libcurl4", "dnf": "libcurl"},
			instead:  "where there is no glibc set " + testservers.EnvMongod + " to a mongod that runs here",
			there:    func(s system) bool { return hasLibrary("libcurl.so.4") },
		}, need{
			what: "Python 3 with pip", why: "pip fetches mongod",
			packages: map[string]string{"apt-get": "python3 python3-pip", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
			there: func(s system) bool {
				return testservers.MongodIsCached() || s.works("", "python3", "-m", "pip", "--version")
			},
		})
	}
	return all
}

// compiler is the one that Go uses.
func compiler() string {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		return cc[0]
	}
	if runtime.GOOS == "darwin" {
		return "clang"
	}
	return "gcc"
}
