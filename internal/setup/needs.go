package main

import (
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
			cc := s.compiler()
			return s.works("#include <stdlib.h>\nint main(void) { return 0; }\n", cc[0], append(cc[1:], "-x", "c", "-fsyntax-only", "-")...)
		},
	}}
	if !azurite.isGiven() {
		all = append(all, azuriteNeed)
	}
	if !mongod.isGiven() {
		all = append(all, mongodNeeds()...)
	}
	return all
}

var azuriteNeed = need{
	what: "Node.js with npm", why: "npm fetches Azurite, Node.js runs it",
	packages: map[string]string{"apt-get": "nodejs npm", "dnf": "nodejs npm", "apk": "nodejs npm", "brew": "node"},
	there: func(s system) bool {
		return s.works("", "node", "--version") && (testservers.AzuriteIsCached() || s.works("", "npm", "--version"))
	},
}

func mongodNeeds() []need {
	switch {
	case testservers.MongodIsInstalled():
		return nil
	case !testservers.CanFetchMongod():
		return []need{{
			what: "mongod", why: "the MongoDB driver is tested on it",
			packages: map[string]string{"brew": "mongodb/brew/mongodb-community"},
			instead: "install MongoDB 4.4 or later so that mongod is on PATH, or set " + testservers.EnvMongod + " to its path, or " +
				testservers.EnvMongoURI + " to a replica set to test against",
			there: func(system) bool { return false },
		}}
	}
	return []need{{
		what: "libcurl 4", why: "mongod is linked with it",
		packages: map[string]string{"apt-get": "libcurl4", "dnf": "libcurl"},
		instead:  "where there is no glibc set " + testservers.EnvMongod + " to a mongod that runs here",
		there:    func(s system) bool { return hasLibrary("libcurl.so.4") },
	}, {
		what: "Python 3 with pip", why: "pip fetches mongod",
		packages: map[string]string{"apt-get": "python3 python3-pip", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
		there: func(s system) bool {
			return testservers.MongodIsCached() || s.works("", "python3", "-m", "pip", "--version")
		},
	}}
}

// compiler is the command with which Go compiles C, which may have a wrapper such as ccache in front, and flags.
func (s system) compiler() []string {
	if command := strings.Fields(s.output("go", "env", "CC")); len(command) > 0 {
		return command
	}
	return []string{"cc"}
}
