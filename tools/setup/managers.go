package main

import (
	"context"
	"slices"
	"strings"
)

// manager is a package manager.
type manager struct {
	name      string
	needsRoot bool
	update    []string // the command to run before an installation; can be nil
	install   []string // the command, without the packages
}

// managers are in the order of preference.
var managers = []manager{
	{name: "apt-get", needsRoot: true, update: []string{"apt-get", "update", "-qq"}, install: []string{"apt-get", "install", "-y",
		"--no-install-recommends"}},
	{name: "dnf", needsRoot: true, install: []string{"dnf", "install", "-y"}},
	{name: "apk", needsRoot: true, install: []string{"apk", "add"}},
	{name: "brew", install: []string{"brew", "install"}},
}

// packages returns the packages that contain what is missing.
func (m *manager) packages(missing []need) []string {
	var out []string
	for _, n := range missing {
		for _, p := range strings.Fields(n.packages[m.name]) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// commands returns the commands that install packages.
func (m *manager) commands(packages []string) [][]string {
	if len(packages) == 0 {
		return nil
	}
	var out [][]string
	if m.update != nil {
		out = append(out, m.update)
	}
	return append(out, slices.Concat(m.install, packages))
}

// system is the machine, as far as setup uses it.
type system struct {
	listOnly bool
	root     bool
	needs    []need                                        // nil: those of needs()
	has      func(program string) bool                     // it is on PATH
	works    func(stdin, name string, args ...string) bool // the program ends with code 0
	output   func(name string, args ...string) string      // of the program; empty if it fails
	run      func(ctx context.Context, command []string) error
	logFile  string      // where run writes the programs' output
	terminal func() bool // a pseudo-terminal can be opened; nil: need not be checked
}

func (s system) missing() []need {
	all := s.needs
	if all == nil {
		all = needs()
	}
	return slices.DeleteFunc(slices.Clone(all), func(n need) bool { return n.met(s) })
}

// manager returns the system's package manager, or nil if it has no known one.
func (s system) manager() *manager {
	for i := range managers {
		if s.has(managers[i].name) {
			return &managers[i]
		}
	}
	return nil
}

// canInstall reports whether packages can be installed without asking for a password.
func (s system) canInstall(m *manager) bool {
	return !m.needsRoot || s.root || s.works("", "sudo", "-n", "true")
}

// asRoot returns the command with sudo in front if the package manager needs it.
func (s system) asRoot(m *manager, command []string) []string {
	if !m.needsRoot || s.root {
		return command
	}
	return append([]string{"sudo", "-n"}, command...)
}
