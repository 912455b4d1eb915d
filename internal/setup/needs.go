package main

import (
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// need is a program or a library that the tests, or the site, require.
type need struct {
	name, reason string
	packages     map[string]string // by package manager; one that is missing has no such package
	alternative  string            // advice for a system without such a package
	met          func(system) bool
}

// needs returns what the tests require, in the order in which it is listed.
func needs() []need {
	compilerAlternative := ""
	if runtime.GOOS == "darwin" {
		compilerAlternative = "it comes with xcode-select --install"
	}
	all := []need{{
		name: "make", reason: "it runs the tests",
		packages: map[string]string{"apt-get": "make", "dnf": "make", "apk": "make", "brew": "make"},
		met:      func(s system) bool { return s.has("make") },
	}, {
		name: "a C compiler", reason: "the race detector needs one",
		packages:    map[string]string{"apt-get": "gcc libc6-dev", "dnf": "gcc glibc-devel", "apk": "gcc musl-dev"},
		alternative: compilerAlternative,
		met: func(s system) bool {
			cc := s.compiler()
			return s.works("#include <stdlib.h>\nint main(void) { return 0; }\n", cc[0], append(cc[1:], "-x", "c", "-fsyntax-only", "-")...)
		},
	}}
	if !azurite.isProvided() {
		all = append(all, azuriteNeed)
	}
	if !mongod.isProvided() {
		all = append(all, mongodNeeds()...)
	}
	return all
}

var azuriteNeed = need{
	name: "Node.js with npm", reason: "npm fetches Azurite, Node.js runs it",
	packages: map[string]string{"apt-get": "nodejs npm", "dnf": "nodejs npm", "apk": "nodejs npm", "brew": "node"},
	met: func(s system) bool {
		return s.works("", "node", "--version") && (testservers.AzuriteIsCached() || s.works("", "npm", "--version"))
	},
}

// docsNeeds is what building the site requires. Some systems ship Python without the parts that make
// environments.
var docsNeeds = []need{{
	name: "Python 3.11 with venv", reason: "mkdocs, which builds the site, runs in an environment of its own",
	packages: map[string]string{"apt-get": "python3 python3-venv", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
	met: func(s system) bool {
		return s.works("", "python3", "-c", "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))")
	},
}}

// modelNeeds is what checking the model in spec/ requires.
var modelNeeds = []need{{
	name: "Java", reason: "TLC, which checks the model, runs on it",
	packages: map[string]string{"apt-get": "default-jre-headless", "dnf": "java-latest-openjdk-headless", "apk": "openjdk17-jre-headless", "brew": "openjdk"},
	met:      func(s system) bool { return s.works("", "java", "-version") },
}, {
	name: "curl or Maven", reason: "one of them fetches TLC",
	packages: map[string]string{"apt-get": "curl ca-certificates", "dnf": "curl", "apk": "curl", "brew": "curl"},
	met:      func(s system) bool { return s.has("curl") || s.has("mvn") },
}}

func mongodNeeds() []need {
	switch {
	case testservers.MongodIsInstalled():
		return nil
	case !testservers.CanFetchMongod():
		return []need{{
			name: "mongod", reason: "the MongoDB driver is tested on it",
			packages: map[string]string{"brew": "mongodb/brew/mongodb-community"},
			alternative: "install MongoDB 4.4 or later so that mongod is on PATH, or set " + testservers.EnvMongod + " to its path, or " +
				testservers.EnvMongoURI + " to a replica set to test against",
			met: func(system) bool { return false },
		}}
	}
	return []need{{
		name: "libcurl 4", reason: "mongod is linked with it",
		packages:    map[string]string{"apt-get": "libcurl4", "dnf": "libcurl"},
		alternative: "where there is no glibc set " + testservers.EnvMongod + " to a mongod that runs here",
		met:         func(s system) bool { return hasLibrary("libcurl.so.4") },
	}, {
		name: "Python 3 with pip", reason: "pip fetches mongod",
		packages: map[string]string{"apt-get": "python3 python3-pip", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
		met: func(s system) bool {
			return testservers.MongodIsCached() || s.works("", "python3", "-m", "pip", "--version")
		},
	}}
}

// compiler returns the command with which Go compiles C. It can begin with a wrapper such as ccache and
// have flags.
func (s system) compiler() []string {
	if command := strings.Fields(s.output("go", "env", "CC")); len(command) > 0 {
		return command
	}
	return []string{"cc"}
}
