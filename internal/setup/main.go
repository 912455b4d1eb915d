// Command setup installs what the tests need and is missing: system packages, with the system's
// package manager, and a MongoDB server and Azurite, in the folder .cache. "make test" runs it
// first. Without the right to install packages it prints the commands that install them.
//
// "setup docs" installs what building the site of the pages needs instead; "make docs" runs it.
// "setup model" installs what checking the model of the protocol needs; "make spec-small" runs it.
//
// With HOLDFAST_SETUP=list it prints these commands and does not run them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// EnvMode names the variable that, set to "list", prevents the installation of packages.
const EnvMode = "HOLDFAST_SETUP"

// interruptGrace is how long an interrupted package manager has to end. If it were killed, it could
// leave packages half configured.
const interruptGrace = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends setup at once
	s, tests := realSystem(ctx), true
	if len(os.Args) == 2 {
		s.needs, tests = map[string][]need{"docs": docsNeeds, "model": modelNeeds}[os.Args[1]], false
	}
	err := run(ctx, s, os.Stderr)
	if err == nil && tests {
		err = fetch(ctx, os.Stderr, mongod, azurite)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1) //nolint:gocritic // the process ends without stop
	}
}

// run installs the missing system packages. If it may not, its error says how to install them.
func run(ctx context.Context, s system, log io.Writer) error {
	missing := s.missing()
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintln(log, "These are missing on this machine:")
	for _, n := range missing {
		fmt.Fprintf(log, "  %s: %s\n", n.name, n.reason)
	}
	m := s.manager()
	if m == nil || s.listOnly || !s.canInstall(m) {
		return &adviceError{missing}
	}
	packages := m.packages(missing)
	begin := time.Now()
	for _, command := range m.commands(packages) {
		command = s.asRoot(m, command)
		fmt.Fprintln(log, "+", strings.Join(command, " "))
		if err := s.run(ctx, command); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
	}
	if missing = s.missing(); len(missing) > 0 {
		return &adviceError{missing}
	}
	fmt.Fprintf(log, "installed %s in %v\n", strings.Join(packages, " "), time.Since(begin).Round(time.Second))
	return nil
}

// adviceError says what is missing and how to install it.
type adviceError struct{ missing []need }

func (e *adviceError) Error() string {
	var b strings.Builder
	b.WriteString("install what is missing with the commands for your system, then start again:")
	for i := range managers {
		m := &managers[i]
		commands := m.commands(m.packages(e.missing))
		if len(commands) > 0 {
			b.WriteString("\n")
		}
		for _, command := range commands {
			if m.needsRoot {
				command = append([]string{"sudo"}, command...)
			}
			fmt.Fprintf(&b, "\n    %s", strings.Join(command, " "))
		}
	}
	for _, n := range e.missing {
		if n.alternative != "" {
			fmt.Fprintf(&b, "\n\n%s: %s", n.name, n.alternative)
		}
	}
	return b.String()
}

// server is a server that the tests use.
type server struct {
	name      string
	env       string      // the variable with the address of a server of the user
	available func() bool // without fetching it
	fetch     func(context.Context) (path string, err error)
}

var (
	mongod = server{"mongod", testservers.EnvMongoURI,
		func() bool { return testservers.MongodIsInstalled() || testservers.MongodIsCached() }, testservers.Mongod}
	azurite = server{"Azurite", testservers.EnvAzblobURL, testservers.AzuriteIsCached, testservers.Azurite}
)

// isProvided reports whether the user provides a running server. Tests that stop servers start their own
// all the same, and fetch the program themselves: a run without such tests does not need it.
func (s server) isProvided() bool { return os.Getenv(s.env) != "" }

// fetch fetches the servers that the user does not provide.
func fetch(ctx context.Context, log io.Writer, servers ...server) error {
	for _, s := range servers {
		switch {
		case !s.isProvided():
			if _, err := s.fetch(ctx); err != nil {
				return err
			}
		case !s.available():
			fmt.Fprintf(log, "%s is set, so setup does not fetch %s; tests that stop servers still need it\n", s.env, s.name)
		}
	}
	return nil
}

// realSystem is the machine on which this program runs.
func realSystem(ctx context.Context) system {
	return system{
		listOnly: os.Getenv(EnvMode) == "list",
		root:     os.Getuid() == 0,
		has:      func(program string) bool { _, err := exec.LookPath(program); return err == nil },
		works: func(stdin, name string, args ...string) bool {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, name, args...)
			c.Stdin = strings.NewReader(stdin)
			return c.Run() == nil
		},
		output: func(name string, args ...string) string {
			out, err := exec.CommandContext(ctx, name, args...).Output()
			if err != nil {
				return ""
			}
			return string(out)
		},
		run: func(ctx context.Context, command []string) error {
			c := exec.CommandContext(ctx, command[0], command[1:]...)
			c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			c.Stdout, c.Stderr = os.Stderr, os.Stderr
			c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
			c.WaitDelay = interruptGrace
			return c.Run()
		},
	}
}
