package main

import (
	"context"
	"slices"
	"strings"
)

// manager is a system's package manager.
type manager struct {
	name      string
	needsRoot bool
	first     []string // what it does before it installs
	install   []string
}

// managers are tried in this order.
var managers = []manager{
	{name: "apt-get", needsRoot: true, first: []string{"apt-get", "update", "-qq"}, install: []string{"apt-get", "install", "-y", "--no-install-recommends"}},
	{name: "dnf", needsRoot: true, install: []string{"dnf", "install", "-y"}},
	{name: "apk", needsRoot: true, install: []string{"apk", "add"}},
	{name: "brew", install: []string{"brew", "install"}},
}

// packages are those that have what is missing.
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

// commands install packages.
func (m *manager) commands(packages []string) [][]string {
	if len(packages) == 0 {
		return nil
	}
	var out [][]string
	if m.first != nil {
		out = append(out, m.first)
	}
	return append(out, slices.Concat(m.install, packages))
}

// system is what setup asks and does of the machine.
type system struct {
	listOnly bool
	root     bool
	needs    []need // those of needs() unless set
	has      func(program string) bool
	works    func(stdin, name string, args ...string) bool // ends with exit code 0
	output   func(name string, args ...string) string      // empty if the program fails
	run      func(ctx context.Context, command []string) error
}

func (s system) missing() []need {
	all := s.needs
	if all == nil {
		all = needs()
	}
	return slices.DeleteFunc(slices.Clone(all), func(n need) bool { return n.there(s) })
}

// manager is nil if the system has none that is known.
func (s system) manager() *manager {
	for i := range managers {
		if s.has(managers[i].name) {
			return &managers[i]
		}
	}
	return nil
}

// mayInstall says whether packages can be installed without a question to anybody.
func (s system) mayInstall(m *manager) bool {
	return !m.needsRoot || s.root || s.works("", "sudo", "-n", "true")
}

func (s system) asRoot(m *manager, command []string) []string {
	if !m.needsRoot || s.root {
		return command
	}
	return append([]string{"sudo", "-n"}, command...)
}
