package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// machine is a system of which packages can be installed.
type machine struct {
	programs  []string // those that are there
	works     []string // programs that end with 0
	installed []string // packages that are there
	ran       []string
	broken    error // of every command
}

// on has two needs, whose packages differ between the package managers.
func (m *machine) on(root bool) system {
	there := func(pkg string) func(system) bool {
		return func(system) bool { return slices.Contains(m.installed, pkg) }
	}
	return system{
		root: root,
		needs: []need{
			{what: "a compiler", why: "to compile", packages: map[string]string{"apt-get": "cc cc-dev", "dnf": "compiler"}, there: there("cc")},
			{what: "a server", why: "to serve", packages: map[string]string{"apt-get": "server cc-dev", "apk": "srv"}, instead: "start one", there: there("server")},
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

// Nothing is run or written when everything is there.
func TestNothingIsMissing(t *testing.T) {
	m := &machine{programs: []string{"apt-get"}, installed: []string{"cc", "server"}}
	var log strings.Builder
	if err := run(t.Context(), m.on(true), &log); err != nil || m.ran != nil || log.Len() > 0 {
		t.Errorf("%v, ran %q, wrote %q", err, m.ran, log.String())
	}
}

// What is missing is installed where that needs no question.
func TestMissingIsInstalled(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine machine
		root    bool
		want    []string
	}{
		{"all, by root", machine{}, true, []string{"apt-get update -qq", "apt-get install -y --no-install-recommends cc cc-dev server"}},
		{"one, by root", machine{installed: []string{"cc"}}, true, []string{"apt-get update -qq", "apt-get install -y --no-install-recommends server cc-dev"}},
		{"one, by sudo", machine{installed: []string{"cc"}, works: []string{"sudo"}}, false, []string{"sudo -n apt-get update -qq", "sudo -n apt-get install -y --no-install-recommends server cc-dev"}},
	} {
		m := c.machine
		m.programs = []string{"apt-get", "dnf"}
		var log strings.Builder
		if err := run(t.Context(), m.on(c.root), &log); err != nil || !slices.Equal(m.ran, c.want) {
			t.Errorf("%s: %v, ran %q, want %q", c.name, err, m.ran, c.want)
		}
		if !strings.Contains(log.String(), "a server: to serve") || !strings.Contains(log.String(), "+ "+c.want[0]) {
			t.Errorf("%s: it writes %q", c.name, log.String())
		}
	}
}

// Without the right to install, the commands for every package manager are listed.
func TestCommandsAreListed(t *testing.T) {
	for name, prepare := range map[string]func(*machine, *system){
		"without rights":            func(*machine, *system) {},
		"without a package manager": func(m *machine, s *system) { m.programs, s.root = nil, true },
		"as asked for":              func(_ *machine, s *system) { s.listOnly, s.root = true, true },
	} {
		m := &machine{programs: []string{"apt-get"}}
		s := m.on(false)
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

// A package manager that fails, or that did not help, is an error.
func TestInstallingFails(t *testing.T) {
	broken := errors.New("no network")
	m := &machine{programs: []string{"apt-get"}, broken: broken}
	if err := run(t.Context(), m.on(true), &strings.Builder{}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	m = &machine{programs: []string{"dnf"}} // its packages are not what was missing
	var advice *adviceError
	if err := run(t.Context(), m.on(true), &strings.Builder{}); !errors.As(err, &advice) {
		t.Errorf("the error is %v", err)
	}
}

// Every need says why, and can be met on at least one system or otherwise.
func TestNeeds(t *testing.T) {
	for _, n := range needs() {
		if n.what == "" || n.why == "" || n.there == nil || len(n.packages) == 0 && n.instead == "" {
			t.Errorf("%+v", n)
		}
		for name := range n.packages {
			if !slices.ContainsFunc(managers, func(m manager) bool { return m.name == name }) {
				t.Errorf("%s: nobody knows the package manager %q", n.what, name)
			}
		}
	}
}
